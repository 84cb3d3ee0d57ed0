-- Shared: what must go on even where Redis is full.
-- include base

-- A full Redis (`maxmemory`) refuses what adds, unless its script freed before.
local function though_full() redis.call('DEL', P .. 'nothing') end
