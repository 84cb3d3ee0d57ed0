"""Faults in takings: locks, leases, fences, losses."""

from tests.model.clock import Mutation

MUTATIONS = [
    Mutation(
        "drop", "a group that has nothing ready has a turn",
        "  if redis.call('EXISTS', list) == 0 then redis.call('LREM', P .. 'ready:' .. job.class, 1"
        ", group) end\n",
        "",
    ),
    Mutation(
        "hand", "a taking that nobody can find lapsed",
        "  redis.call('ZADD', P .. 'leases', text_of(now + ttl), id)\n",
        "",
    ),
    Mutation(
        "hand", "every attempt is the first",
        "'attempt', attempt,",
        "'attempt', 1,",
    ),
    Mutation(
        "hand", "what comes melts into a job that was started",
        "    unmelt(id, job, keys)\n",
        "",
    ),
    Mutation(
        "hand", "a job is at work without its locks",
        "  if not lock_all(id, keys, token, ttl, job.slots) then return false end\n",
        "",
    ),
    Mutation(
        "hand", "each taking begins the lifetime anew",
        "'taken', job.taken or now_text)",
        "'taken', now_text)",
    ),
    Mutation(
        "take", "a started job ends because it was not started in time",
        "and not job.taken then",
        "then",
    ),
    Mutation(
        "take", "a job is started though its time to start is over",
        "      if job.expires and tonumber(job.expires) < now and not job.taken then",
        "      if false then", seldom=True,
    ),
    Mutation(
        "take", "a node is given a task it does not have",
        "redis.call('SISMEMBER', P .. 'tasks:' .. node, job.task) == 1",
        "true", seldom=True,
    ),
    Mutation(
        "take", "a runner is given again what it has done",
        "string.sub(mine, 1, #token) == token and",
        "",
    ),
    Mutation(
        "take", "a taking asked for again takes another job",
        "  if id then\n    -- include handed",
        "  if false then\n    -- include handed",
    ),
    Mutation(
        "take", "a job that was not taken after all does not say that it is ready",
        "        redis.call('HSET', job.name, 'state', 'ready')",
        "",
    ),
    Mutation(
        "runner_take", "a worker that was replaced is given jobs",
        "if known and known ~= incarnation then return {false, '0', rung} end\n",
        "",
    ),
    Mutation(
        "locking", "a release without a look at the token frees the next holder",
        "  if redis.call('GET', name) == token then redis.call('DEL', name) end\n",
        "  redis.call('DEL', name)\n", seldom=True,
    ),
    Mutation(
        "locking", "a lock is taken from whoever has it",
        "if redis.call('SET', P .. 'lock:' .. key, token, 'NX', 'PX', ttl) then return 1 end",
        "if redis.call('SET', P .. 'lock:' .. key, token, 'PX', ttl) then return 1 end",
    ),
    Mutation(
        "locking", "a lane with a limit has one lock only",
        "  local others = limit_of(key) - 1\n",
        "  local others = 0\n",
    ),
    Mutation(
        "fence", "a fence that does not grow",
        "fence = string.format('%.0f', last + 1)",
        "fence = last",
    ),
    Mutation(
        "turns", "who was ready last is taken first",
        "  local id = redis.call('LPOP', list)",
        "  local id = redis.call('RPOP', list)",
    ),
    Mutation(
        "turns", "one group is served until it has nothing left",
        "'LMOVE', ready, ready, 'LEFT', 'RIGHT')",
        "'LMOVE', ready, ready, 'RIGHT', 'LEFT')", seldom=True,
    ),
    Mutation(
        "ready", "what a finish made ready and did not take is forgotten",
        "local function ring_readied(delay, served)\n  settle()\n",
        "local function ring_readied(delay, served)\n", seldom=True,
    ),
    Mutation(
        "turns", "what a finish made ready goes before what was ready",
        "job.class == class and redis.call('EXISTS', ready) == 0 then",
        "job.class == class then",
    ),
    Mutation(
        "lock_take", "a lock goes before those in line",
        "if redis.call('EXISTS', record, line, lock) == 0 then",
        "if redis.call('EXISTS', record, lock) == 0 then",
    ),
    Mutation(
        "lock_wait", "a lock waited for begins with what is left of its lease",
        "  redis.call('ZADD', P .. 'locks', now + found[2], id)\n",
        "", seldom=True,
    ),
    Mutation(
        "lock_release", "a lock is released by anybody",
        "if about[2] ~= token then return {'lost', {}} end\n",
        "",
    ),
    Mutation(
        "lapsed", "a lock is taken from a living holder",
        "till and tonumber(till) < now and read(id)",
        "till and read(id)",
    ),
    Mutation(
        "again", "a job is put back behind those that came later",
        "group_of(job), true)",
        "group_of(job))", seldom=True,
    ),
    Mutation(
        "again", "a loss counts as an attempt",
        " - (job.losses or 0)",
        "", seldom=True,
    ),
    Mutation(
        "again", "a step counts as an attempt",
        " - (job.forgiven or 0)",
        "", seldom=True,
    ),
    Mutation(
        "lose", "losses have no bound",
        "  if losses > limits_of(job.limits)[2] then return give_up(id, job, 'failed', 'error', detail) end\n",
        "", seldom=True,
    ),
    Mutation(
        "lose", "a cancelled job runs again after a loss",
        "  if job.stop and job.phase ~= 'rollback' then return give_up(id, job, job.stop) end\n",
        "", seldom=True,
    ),
    Mutation(
        "lose", "a rollback is run twice",
        "  if job.phase == 'rollback' then return give_up(id, job, 'failed', 'error', detail) end\n",
        "", seldom=True,
    ),
    Mutation(
        "lose", "a job that was handed over lost an attempt",
        "    note(id, 'forgiven', (job.forgiven or 0) + 1)\n",
        "    note(id)\n", seldom=True,
    ),
    Mutation(
        "job_lose", "a loss that is told late hits the next taking",
        " or job.token ~= token",
        "", seldom=True,
    ),
    Mutation(
        "lease_renew", "a lease is renewed with an old token",
        "job and job.token == token\n",
        "job\n", seldom=True,
    ),
    Mutation(
        "lease_renew", "a job that runs on is given to another",
        "    drop(id, job)\n",
        "", seldom=True,
    ),
    Mutation(
        "lease_renew", "a job runs on past its lifetime",
        "since + limits_of(job.limits)[4] < now",
        "false", seldom=True,
    ),
    Mutation(
        "lease_renew", "a cancelled job ends as expired",
        "not job.stop and ",
        "", seldom=True,
    ),
    Mutation(
        "lease_renew", "a renewal takes another's lock",
        "other and other ~= token and (lock_one(key, token, ttl) or beyond(key, token))",
        "nil",
    ),
    Mutation(
        "lease_renew", "a lease that was renewed lapses",
        "  redis.call('ZADD', P .. leases_of(job), now + ttl, id)\n",
        "",
    ),
    Mutation(
        "lease_renew", "a runner that was stopped brings its job back",
        " and job.condemned ~= token",
        "", seldom=True,
    ),
]  # fmt: skip
