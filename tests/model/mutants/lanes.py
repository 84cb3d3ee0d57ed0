"""Faults in lines: who stands where, and who may start."""

from tests.model.clock import Mutation

MUTATIONS = [
    Mutation(
        "job_submit", "a submit asked again is a second job",
        "if redis.call('EXISTS', name) == 1 then",
        "if false then",
    ),
    Mutation(
        "job_submit", "a lock whose holder is gone is never free",
        "  end_lapsed(keys[1])\n",
        "", seldom=True,
    ),
    Mutation(
        "busy", "one more waits than was agreed to",
        "    if waiting >= room then",
        "    if waiting > room then", seldom=True,
    ),
    Mutation(
        "unite", "a submit that melted is not known when asked again",
        "  redis.call('HSET', P .. 'job:' .. alias, 'alias', id)\n",
        "",
    ),
    Mutation(
        "unite", "everything becomes something again",
        "one[name] == cjson.null or values == cjson.null",
        "values == cjson.null", seldom=True,
    ),
    Mutation(
        "lane", "a job starts that is in front in one of its lines only",
        "    good, marked = in_front(id, keys, job.weight)\n",
        "",
    ),
    Mutation(
        "lane", "a job is made ready that is at work",
        "job.state ~= 'waiting' or ",
        "",
    ),
    Mutation(
        "lane", "a job is made ready once for each of its keys",
        " or fresh and fresh.id == id then",
        " then",
    ),
    Mutation(
        "lane", "a free place of a lane with a limit is left empty",
        "redis.call('ZCOUNT', line, '-inf', '-inf'), limit_of(key))",
        "redis.call('ZCOUNT', line, '-inf', '-inf'), 1)",
    ),
    Mutation(
        "lane", "who was started in a lane with a limit is not counted",
        "    pin(id, keys)\n",
        "",
    ),
    Mutation(
        "enter", "a job stands in the first of its lines only",
        "  for _, key in ipairs(keys) do\n    local line",
        "  for _, key in ipairs({keys[1]}) do\n    local line",
    ),
    Mutation(
        "enter", "who was started is overtaken by a greater priority",
        "        pin(heads[2], keys_of(other[2]))\n",
        "",
    ),
    Mutation(
        "enter", "an order of each lane's own: two jobs wait for each other",
        "    redis.call('ZADD', line, score, id)\n",
        "    redis.call('ZADD', line, redis.call('ZCARD', line), id)\n",
    ),
    Mutation(
        "enter", "priority is forgotten",
        "sequence - priority * 17592186044416",
        "sequence",
    ),
    Mutation(
        "front", "a job is admitted past a paused lane",
        "  if redis.call('ZSCORE', line, PAUSED) then return false end\n",
        "",
    ),
    Mutation(
        "front", "more run at once than the limit says",
        "if place >= limit_of(key) or (weight and place > 0) then return false end",
        "if weight and place > 0 then return false end",
    ),
    Mutation(
        "front", "one of weight `all` does not run alone",
        "      if redis.call('HGET', P .. 'job:' .. other, 'weight') then return false end\n",
        "", seldom=True,
    ),
    Mutation(
        "front", "one of weight `all` starts beside others",
        "or (weight and place > 0) then",
        "then", seldom=True,
    ),
    Mutation(
        "busy", "a lane counts as busy while there is room in it",
        "marks > 0 and length >= limit_of(key) then",
        "marks > 0 and length > 0 then", seldom=True,
    ),
    Mutation(
        "busy", "who runs is counted among those that wait",
        "  return redis.call('ZCARD', line) - marks - started\n",
        "  return redis.call('ZCARD', line) - marks\n",
    ),
    Mutation(
        "halt", "what was ready is taken from a paused lane",
        "  drop(id, job)\n  redis.call('HSET', P .. 'job:' .. id, 'state', 'waiting')\n",
        "  redis.call('HSET', P .. 'job:' .. id, 'state', 'waiting')\n", seldom=True,
    ),
    Mutation(
        "halt", "a pause takes the front from a job that was started",
        " and not job.taken then",
        " then", seldom=True,
    ),
    Mutation(
        "halt", "a job called back by a pause keeps a front that it does not use",
        "  for _, key in ipairs(keys) do redis.call('ZADD', P .. 'line:' .. key, 'XX', score, id) end\n",
        "", seldom=True,
    ),
    Mutation(
        "halt", "nobody takes the place of a job that a pause calls back",
        "  for _, key in ipairs(keys) do admit(key) end\n",
        "",
    ),
    Mutation(
        "halt", "who runs is not counted when a limit comes",
        "  if job and job[1] ~= 'waiting' then pin(head, keys_of(job[2])) end\n",
        "", seldom=True,
    ),
    Mutation(
        "lane_resume", "nobody starts when a pause ends",
        "  admit(key)\n",
        "", seldom=True,
    ),
    Mutation(
        "lane_limit", "a lowered limit lets those start that are ready",
        "if tonumber(limit) < before then call_back(key) end\n",
        "", seldom=True,
    ),
    Mutation(
        "lane_limit", "a raised limit starts nobody",
        "admit(key)\n",
        "", seldom=True,
    ),
    Mutation(
        "lane_limit", "a limit of one leaves a note behind",
        "  redis.call('HDEL', P .. 'limits', key)\n",
        "",
    ),
    Mutation(
        "job_move", "a job moved back holds up whoever is first now",
        "for _, key in ipairs(keys) do admit(key) end\n",
        "admit(keys[1])\n", seldom=True,
    ),
    Mutation(
        "job_move", "a job is moved in one of its lines only",
        "enter(id, keys, score)\n",
        "enter(id, {keys[1]}, score)\n",
    ),
    Mutation(
        "job_move", "a job that is ready is moved behind others",
        "if job.state ~= 'waiting' and job.state ~= 'scheduled' then return {job.state, 0, rung} end\n",
        "if job.state ~= 'waiting' and job.state ~= 'scheduled' and job.state ~= 'ready' then retur"
        "n {job.state, 0, rung} end\n", seldom=True,
    ),
    Mutation(
        "job_move", "a move asked for again is made twice",
        "if asked ~= '' and redis.call('HGET', name, 'move') == asked then return {job.state, 1, rung} end\n",
        "",
    ),
    Mutation(
        "lane_release", "a job that was never started is released",
        "if not job or not job.taken or",
        "if not job or", seldom=True,
    ),
    Mutation(
        "lane_release", "a release that is asked twice hits the next job",
        " or (holder ~= '' and holder ~= first)",
        "", seldom=True,
    ),
    Mutation(
        "match", "a class that is new is given to a draining node",
        "redis.call('HGET', P .. 'node:' .. node, 'closed') ~= '1'\n    and ",
        "", seldom=True,
    ),
]  # fmt: skip
