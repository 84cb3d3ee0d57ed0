-- job_unpark: all sub-results of a parked job ended (or its time did): as an attempt ends, so does it.
-- KEYS prefix
-- ARGV id last outcome detail delay one two three
--   last: the token under which it parked; outcome, detail, delay, one, two, three: as of job_finish
-- returns {state or '', rung}; '' = it is not parked under that token any more, nothing was done
-- include ending
local id, last, outcome, detail, delay, one, two, three = unpack(ARGV)
local job = read(id)
if not job or job.state ~= 'parked' or job.last ~= last then return {'', rung} end
away(id, job)
redis.call('HDEL', P .. 'job:' .. id, 'handles')
local state = conclude(id, job, outcome, detail, delay, {one, two, three})
ring_readied(2000)
return {state, rung}
