-- fence_next: a fence of its own, for whoever writes without a lane.
-- KEYS prefix
-- returns the fence; asked again: another one
-- include fence
return next_fence()
