-- job_lose: the process that held this token is gone (or was stopped): the job goes on without it.
-- KEYS prefix
-- ARGV id token how detail delay
--   how: lost | handed | timed_out; detail: JSON of the error; delay: ms until another attempt after a time limit
-- returns {state or '', rung}; '' = the token is not the current one any more, nothing was done
-- include lose
local id, token, how, detail, delay = unpack(ARGV)
local job = read(id)
if not job or job.token ~= token or job.state ~= 'running' then return {'', rung} end
local state = lose(id, job, how, detail, delay)
ring_readied(2000)
return {state, rung}
