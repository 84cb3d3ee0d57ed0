"""Faults in takings: locks, leases, fences, losses."""

from tests.model.clock import Mutation

MUTATIONS = [
    Mutation(
        "ready", "a group that has nothing ready has a turn",
        "    redis.call('LREM', c.P .. 'ready:' .. job.class, 1, group)\n",
        "",
    ),
    Mutation(
        "ready", "among ready jobs priority has no effect",
        "sequence - (priority or 0) * WORTH",
        "sequence",
    ),
    Mutation(
        "ready", "a job that was started goes behind those that were not",
        "redis.call('INCR', c.P .. 'sequence') - FRONT",
        "redis.call('INCR', c.P .. 'sequence')", seldom=True,
    ),
    Mutation(
        "ready", "a job that is not to be taken is counted as ready",
        "  redis.call('ZREM', list, id)\n  redis.call('SREM', c.P .. 'state:ready', id)\n",
        "  redis.call('ZREM', list, id)\n",
    ),
    Mutation(
        "classes", "a class that is needed is forgotten",
        "  if redis.call('SADD', c.P .. 'classes', class) == 0 then return end\n",
        "  if redis.call('SADD', c.P .. 'classes', class) == 0 or true then return end\n",
    ),
    Mutation(
        "claim", "a taking that nobody can find lapsed",
        "  redis.call('ZADD', c.P .. 'leases', base.text_of(c.uptime + ttl), id)\n",
        "",
    ),
    Mutation(
        "claim", "every attempt is the first",
        "'attempt', job.attempt,",
        "'attempt', 1,",
    ),
    Mutation(
        "claim", "what comes melts into a job that was started",
        "  if job.melt then coalesce.close(c, id, job, keys) end\n",
        "",
    ),
    Mutation(
        "claim", "a job is at work without its locks",
        "  if not locks.acquire(c, id, keys, token, ttl, job.slots) then return false end\n",
        "",
    ),
    Mutation(
        "claim", "each taking begins the lifetime anew",
        "'taken', job.taken or c.now_text)",
        "'taken', c.now_text)",
    ),
    Mutation(
        "claim", "a started job ends because it was not started in time",
        "if job.expires and not job.taken and base",
        "if job.expires and base",
    ),
    Mutation(
        "claim", "a job is started though its time to start is over",
        "  if job.expires and not job.taken and base.is_past(c, job.expires) then",
        "      if false then", seldom=True,
    ),
    Mutation(
        "claim", "a node is given a task it does not have",
        "redis.call('SISMEMBER', c.P .. 'tasks:' .. node, job.task) == 1",
        "true", seldom=True,
    ),
    Mutation(
        "claim", "a runner is given again what it has done",
        "if held == token then",
        "if id ~= '' then",
    ),
    Mutation(
        "claim", "a taking asked for again takes another job",
        "  if held == token then\n",
        "  if false then\n",
    ),
    Mutation(
        "claim", "a request that comes late takes a job for nobody",
        "elseif not before or held == before then",
        "else",
    ),
    Mutation(
        "runner", "a bell that was answered gives another job",
        "answers and '' or '-')",
        "'')",
    ),
    Mutation(
        "runner", "a finish that comes late takes away what its runner holds now",
        "  if holds(c, node, runner, token) then redis.call('HDEL', c.P .. 'work:' .. node, runner) end\n",
        "  redis.call('HDEL', c.P .. 'work:' .. node, runner)\n", seldom=True,
    ),
    Mutation(
        "claim", "a job that was not taken after all does not say that it is ready",
        "      redis.call('HSET', c.P .. 'job:' .. id, 'state', 'ready')",
        "",
    ),
    Mutation(
        "runner", "a worker that was replaced is given jobs",
        "  if known and known ~= incarnation then return false end\n",
        "",
    ),
    Mutation(
        "locks", "a release without a look at the token frees the next holder",
        "  if not value or token_of(value) == token then return end\n",
        "  if true then return end\n", seldom=True,
    ),
    Mutation(
        "locks", "a lock is taken from whoever has it",
        "  if left then set(c, name, token, ttl) end\n  return not held or left\n",
        "  set(c, name, token, ttl)\n  return true\n",
    ),
    Mutation(
        "locks", "a lane with a limit has one lock only",
        "  local others = line.limit(c, key) - 1\n",
        "  local others = 0\n",
    ),
    Mutation(
        "locks", "a fence that does not grow",
        "  given[c.P] = fence\n  return text\n",
        "  return string.format('%.0f', MARGIN)\n",
    ),
    Mutation(
        "ready", "who was ready last is taken first",
        "redis.call('ZPOPMIN', list)",
        "redis.call('ZPOPMAX', list)",
    ),
    Mutation(
        "ready", "one group is served until it has nothing left",
        "'LMOVE', groups, groups, 'LEFT', 'RIGHT')",
        "'LMOVE', groups, groups, 'RIGHT', 'LEFT')", seldom=True,
    ),
    Mutation(
        "doorbells", "what a finish made ready and did not take is forgotten",
        "function doorbells.ring_readied(c)\n"
        "  ready.write_fresh(c)\n",
        "function doorbells.ring_readied(c)\n", seldom=True,
    ),
    Mutation(
        "ready", "what a finish made ready goes before what was ready",
        "job.class == class and redis.call('EXISTS', groups) == 0 then",
        "job.class == class then", seldom=True,
    ),
    Mutation(
        "held", "a lock goes before those in line",
        "if redis.call('EXISTS', name, members, c.P .. 'lock:' .. key) > 0 then",
        "if redis.call('EXISTS', name, c.P .. 'lock:' .. key) > 0 then",
    ),
    Mutation(
        "lock", "a lock waited for begins with what is left of its lease",
        "job.slots, ttl)\n    redis.call('ZADD', c.P .. 'locks', c.uptime + ttl, id)\n",
        "job.slots, ttl)\n", seldom=True,
    ),
    Mutation(
        "held", "a lock is released by anybody",
        "  if held_by ~= token then return 'lost' end\n",
        "",
    ),
    Mutation(
        "settle", "a lock is taken from a living holder",
        " and locks.is_lapsed(c, job) then",
        " then", seldom=True,
    ),
    Mutation(
        "settle", "a job is put back behind those that came later",
        "ready.put_back(c, id, job.class, ready.group_of(job))",
        "ready.put(c, id, job.class, ready.group_of(job))", seldom=True,
    ),
    Mutation(
        "settle", "a loss counts as an attempt",
        " - (job.losses or 0)",
        "", seldom=True,
    ),
    Mutation(
        "settle", "a step counts as an attempt",
        " - (job.forgiven or 0)",
        "", seldom=True,
    ),
    Mutation(
        "settle", "losses have no bound",
        "  if losses > record.max_losses(job) then",
        "  if false then", seldom=True,
    ),
    Mutation(
        "settle", "a cancelled job runs again after a loss",
        "  if job.stop and job.phase ~= 'rollback' then return settle.give_up(c, id, job, job.stop) end\n",
        "", seldom=True,
    ),
    Mutation(
        "settle", "a rollback is run twice",
        "  if job.phase == 'rollback' then return settle.give_up(c, id, job, 'failed', 'error', detail) end\n",
        "", seldom=True,
    ),
    Mutation(
        "settle", "a job that was handed over lost an attempt",
        ", 'token', '', 'attempt', job.attempt - 1)",
        ", 'token', '')", seldom=True,
    ),
    Mutation(
        "settle", "who handed a job over may still finish it",
        ", 'token', '', 'attempt', job.attempt - 1)",
        ", 'attempt', job.attempt - 1)", seldom=True,
    ),
    Mutation(
        "runner", "a loss that is told late hits the next taking",
        " or job.token ~= token",
        "", seldom=True,
    ),
    Mutation(
        "runner", "a lease is renewed with an old token",
        "job and job.token == token\n",
        "job\n", seldom=True,
    ),
    Mutation(
        "runner", "a job that runs on is given to another",
        "    ready.drop(c, id, job)\n"
        "    redis.call('HINCRBY'",
        "    redis.call('HINCRBY'", seldom=True,
    ),
    Mutation(
        "runner", "a job runs on past its lifetime",
        "since + record.max_lifetime(job) < c.now",
        "false", seldom=True,
    ),
    Mutation(
        "runner", "a cancelled job ends as expired",
        "not job.stop and ",
        "", seldom=True,
    ),
    Mutation(
        "locks", "a renewal takes another's lock",
        "taken and (acquire_one(c, key, token, ttl) or acquire_beyond(c, key, token, ttl))",
        "nil",
    ),
    Mutation(
        "runner", "a lease that was renewed lapses",
        "  redis.call('ZADD', c.P .. record.leases_of(job), c.uptime + ttl, id)\n",
        "",
    ),
    Mutation(
        "runner", "a runner that was stopped brings its job back",
        " and job.condemned ~= token",
        "", seldom=True,
    ),
]  # fmt: skip
