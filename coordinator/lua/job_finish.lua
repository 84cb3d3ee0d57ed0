-- job_finish: record how an attempt ended, leave the lines, admit who is next, and take the next ready job.
-- KEYS prefix
-- ARGV id token outcome detail delay one two three node runner next ttl rest app told…
--   outcome: succeeded | failed (no more attempts) | raised (again after `delay` ms where attempts are left; one: their
--   bound, '' = the job's own) | conflict | parked | step (one, two, three: class, task, time limit in ms of the next)
--   detail: JSON of the result, error or handles; next: token of the next taking, '' = none wanted
--   rest: '1' = the slice is over: ring again where work is ready; told: ids whose results and links were sent
-- returns {verdict, state, job or false, rung}; verdict: accepted | lost | condemned; asked again: the same
-- include leave
-- include take
local id, token, outcome, detail, delay, one, two, three, node, runner, next, ttl, rest, app = unpack(ARGV, 1, 14)
local job, verdict, state, known = {name = P .. 'job:' .. id}, 'accepted', nil, true
fill(job, 'state', 'keys', 'limits', 'token', 'class', 'node', 'tell', 'melt', 'seldom')
tell_after = 10000
direct = next ~= ''
if #ARGV > 14 then redis.call('ZREM', P .. 'unsent:' .. app, unpack(ARGV, 15)) end

if job.token == token and job.state == 'running' and outcome == 'succeeded' and not job.seldom then
  state = leave(id, job, 'succeeded', 'result', detail)
  known = false
else -- what most jobs do not need is put together only here
  -- include record
  job = read(id)
  if not job or (job.token ~= token and job.last ~= token) then
    verdict = 'lost'
  elseif job.condemned == token then
    verdict = 'condemned'
  elseif job.token ~= token then
    state = redis.call('HGET', job.name, 'said') -- whatever it is since
  elseif TERMINAL[job.state] then
    state = job.state
  else
    -- include drop
    -- include ending
    if job.state == 'ready' then -- put back too early: it was not lost after all
      drop(id, job)
      job.losses = redis.call('HINCRBY', job.name, 'losses', -1)
    end
    state = conclude(id, job, outcome, detail, delay, {one, two, three})
    if not TERMINAL[state] then redis.call('HSET', job.name, 'said', state) end
  end
end
local taken, served = false, nil
if next ~= '' and verdict ~= 'condemned' then
  taken = again_or_take(node, runner, next, ttl, known)
  served = taken and taken[CLASS]
else
  -- include ring
  redis.call('HDEL', P .. 'work:' .. node, runner)
  rescore(node)
  for _, class in ipairs(rest == '1' and redis.call('SMEMBERS', P .. 'classes:' .. node) or {}) do
    if not served and redis.call('EXISTS', P .. 'ready:' .. class) == 1 then
      bell_for(node, 2000)
      served = class
    end
  end
end
ring_readied(2000, served)
return {verdict, state or '', taken, rung}
