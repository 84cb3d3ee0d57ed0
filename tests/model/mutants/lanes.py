"""Faults in lines: who stands where, and who may start."""

from tests.model.clock import Mutation

MUTATIONS = [
    Mutation(
        "submit", "a submit asked again is a second job",
        "if revoked and redis.call('EXISTS', name) == 1 then",
        "if false then",
    ),
    Mutation(
        "submit", "a lock whose holder is gone is never free",
        "    settle.end_lapsed(c, keys[1])\n",
        "", seldom=True,
    ),
    Mutation(
        "submit", "one more waits than was agreed to",
        "    if count >= room then",
        "    if count > room then", seldom=True,
    ),
    Mutation(
        "coalesce", "a submit that melted is not known when asked again",
        "  redis.call('HSET', c.P .. 'job:' .. alias, 'alias', id)\n",
        "",
    ),
    Mutation(
        "coalesce", "everything becomes something again",
        "held[name] == cjson.null or values == cjson.null",
        "values == cjson.null", seldom=True,
    ),
    Mutation(
        "admit", "a job starts that is in front in one of its lines only",
        "good, marked = in_front(c, id, keys, job.weight) end",
        "good = true end",
    ),
    Mutation(
        "admit", "a job is made ready that is at work",
        "job.state ~= 'waiting' or ",
        "",
    ),
    Mutation(
        "admit", "a free place of a lane with a limit is left empty",
        "redis.call('ZRANGE', members, started, line.limit(c, key))",
        "redis.call('ZRANGE', members, started, 1)",
    ),
    Mutation(
        "admit", "who was started in a lane with a limit is not counted",
        "  if marked then line.pin(c, id, keys) end\n",
        "",
    ),
    Mutation(
        "line", "a job stands in the first of its lines only",
        "  for _, key in ipairs(keys) do\n"
        "    local members",
        "  for _, key in ipairs({keys[1]}) do\n"
        "    local members",
    ),
    Mutation(
        "line", "who was started is overtaken by a greater priority",
        "        line.pin(c, heads[2], record.keys_of(other[2]))\n",
        "",
    ),
    Mutation(
        "line", "an order of each lane's own: two jobs wait for each other",
        "    redis.call('ZADD', members, score, id)\n",
        "    redis.call('ZADD', members, redis.call('ZCARD', members), id)\n",
    ),
    Mutation(
        "line", "priority is forgotten",
        "sequence - priority * 17592186044416",
        "sequence",
    ),
    Mutation(
        "admit", "a job is admitted past a paused lane",
        "  if redis.call('ZSCORE', members, line.PAUSED) then return false end\n",
        "",
    ),
    Mutation(
        "admit", "more run at once than the limit says",
        "if place >= limit or (weight and place > 0) then return false end",
        "if weight and place > 0 then return false end",
    ),
    Mutation(
        "admit", "one of weight `all` does not run alone",
        "  return not alone or place < redis.call('ZRANK', members, alone)\n",
        "  return true\n", seldom=True,
    ),
    Mutation(
        "line", "a step does not see that the first of weight `all` left its line",
        "function line.changed(c) c.alone = false end",
        "function line.changed() end", seldom=True,
    ),
    Mutation(
        "admit", "one of weight `all` starts beside others",
        "or (weight and place > 0) then",
        "then", seldom=True,
    ),
    Mutation(
        "submit", "a lane counts as busy while there is room in it",
        "    if length >= limit or ",
        "    if length > 0 or ", seldom=True,
    ),
    Mutation(
        "submit", "skip looks at keys that it was not told to look at",
        "if when_busy == 'skip' then",
        "if when_busy:sub(1, 4) == 'skip' then", seldom=True,
    ),
    Mutation(
        "submit", "who runs is counted among those that wait",
        "  return redis.call('ZCARD', members) - marks - started\n",
        "  return redis.call('ZCARD', members) - marks\n",
    ),
    Mutation(
        "lane", "what was ready is taken from a paused lane",
        "  ready.drop(c, id, job)\n"
        "  redis.call('HSET', job.name, 'state', 'waiting')\n",
        "  redis.call('HSET', job.name, 'state', 'waiting')\n", seldom=True,
    ),
    Mutation(
        "lane", "a pause takes the front from a job that was started",
        " and not job.taken then",
        " then", seldom=True,
    ),
    Mutation(
        "lane", "a job called back by a pause keeps a front that it does not use",
        "  for _, key in ipairs(keys) do redis.call('ZADD', c.P .. 'line:' .. key, 'XX', score, id) end\n",
        "", seldom=True,
    ),
    Mutation(
        "lane", "nobody takes the place of a job that a pause calls back",
        "  for _, key in ipairs(keys) do admit.lane(c, key) end\n",
        "", seldom=True,
    ),
    Mutation(
        "lane", "who runs is not counted when a limit comes",
        "  if job and job[1] ~= 'waiting' then line.pin(c, head, record.keys_of(job[2])) end\n",
        "", seldom=True,
    ),
    Mutation(
        "lane", "nobody starts when a pause ends",
        "'resumed', resumed)\n"
        "  end\n"
        "  admit.lane(c, key)\n",
        "'resumed', resumed)\n"
        "  end\n", seldom=True,
    ),
    Mutation(
        "lane", "a lowered limit lets those start that are ready",
        "if tonumber(limit) < before then call_back(c, key) end\n",
        "", seldom=True,
    ),
    Mutation(
        "lane", "a raised limit starts nobody",
        "  admit.lane(c, key)\n"
        "  return before\n",
        "  return before\n", seldom=True,
    ),
    Mutation(
        "lane", "a limit of one leaves a note behind",
        "  redis.call('HDEL', c.P .. 'limits', key)\n",
        "", seldom=True,
    ),
    Mutation(
        "job", "a job moved back holds up whoever is first now",
        "for _, key in ipairs(keys) do admit.lane(c, key) end\n",
        "admit.lane(c, keys[1])\n", seldom=True,
    ),
    Mutation(
        "job", "a job is moved in one of its lines only",
        "line.enter(c, id, keys, score)\n",
        "line.enter(c, id, {keys[1]}, score)\n",
    ),
    Mutation(
        "job", "a job that is ready is moved behind others",
        "job.state ~= 'waiting' and job.state ~= 'scheduled' then return",
        "job.state ~= 'waiting' and job.state ~= 'scheduled' and job.state ~= 'ready' then return", seldom=True,
    ),
    Mutation(
        "job", "a move asked for again is made twice",
        "  if asked ~= '' and redis.call('HGET', name, 'move') == asked then return {job.state, 1} end\n",
        "",
    ),
    Mutation(
        "lane", "a job that was never started is released",
        "if not job or not job.taken then",
        "if not job then", seldom=True,
    ),
    Mutation(
        "lane", "a release that is asked twice hits the next job",
        "  if holder == '' then first",
        "  if true then first", seldom=True,
    ),
    Mutation(
        "line", "of those that hold a lane the one with the least name is released",
        " and (not since or taken < since) then",
        " and not since then", seldom=True,
    ),
    Mutation(
        "submit", "one of weight `all` has a skip beside it",
        "    if length > 0 and (weight or line.first_alone(c, key, limit)) then return key end\n",
        "",
    ),
    Mutation(
        "classes", "a class that is new is given to a draining node",
        "redis.call('HGET', c.P .. 'node:' .. node, 'closed') ~= '1'\n"
        "    and ",
        "", seldom=True,
    ),
]  # fmt: skip
