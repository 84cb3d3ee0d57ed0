-- child_ended: a sub-task of a job is over; where the job is parked, its app's wardens look at once.
-- KEYS prefix
-- ARGV parent
-- returns 1 when it is parked, else 0
-- include full
-- include look
local parent = ARGV[1]
though_full()
look_at(parent)
return redis.call('HGET', P .. 'job:' .. parent, 'state') == 'parked' and 1 or 0
