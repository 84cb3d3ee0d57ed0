"""Faults in how attempts and jobs end, and what an operator does about it."""

from tests.model.clock import Mutation

MUTATIONS = [
    Mutation(
        "runner", "an outcome is accepted from whoever tells it",
        "job.token ~= token and job.last ~= token",
        "false",
    ),
    Mutation(
        "runner", "an outcome told again counts twice",
        "  if job.token ~= token then return 'accepted', redis.call('HGET', job.name, 'said') or '' end -- as it "
        "was told\n",
        "",
    ),
    Mutation(
        "runner", "a condemned attempt whose job went on takes another job",
        "redis.call('EXISTS', c.P .. 'condemned:' .. token) == 1 and 'condemned' or 'lost', ''",
        "'lost', ''", seldom=True,
    ),
    Mutation(
        "runner", "the outcome of a condemned attempt counts",
        "  if job.condemned == token then return 'condemned', '' end\n",
        "", seldom=True,
    ),
    Mutation(
        "runner", "a loss that was none is counted",
        "    job.losses = redis.call('HINCRBY', job.name, 'losses', -1)\n",
        "    job.losses = job.losses - 1\n", seldom=True,
    ),
    Mutation(
        "settle", "a job that waits for its retry keeps its locks",
        "  if token ~= '' then locks.release(c, record.keys_of(job.keys), token, job.slots) end\n",
        "",
    ),
    Mutation(
        "settle", "a job that is parked has a lease",
        "  redis.call('ZREM', c.P .. 'leases', id)\n",
        "",
    ),
    Mutation(
        "settle", "a retry that never comes",
        "  redis.call('ZADD', c.P .. 'due', c.now + delay, id)\n",
        "",
    ),
    Mutation(
        "settle", "a job is rolled back twice",
        " or job.phase == 'undone'",
        "", seldom=True,
    ),
    Mutation(
        "settle", "a job is rolled back that was never started",
        "not job.taken or",
        "",
    ),
    Mutation(
        "settle", "a double fault is not counted",
        "  redis.call('HINCRBY', c.P .. 'counts', 'faults', 1)\n",
        "", seldom=True,
    ),
    Mutation(
        "settle", "nothing is held for an operator",
        "  if not job.hold or",
        "  if",
    ),
    Mutation(
        "settle", "a held lane is held for ever",
        "  redis.call('ZADD', c.P .. 'expiry', 'NX', job.taken + record.max_lifetime(job), id)\n",
        "",
    ),
    Mutation(
        "settle", "a cancelled job succeeds",
        "  if job.stop then return settle.give_up(c, id, job, job.stop) end\n",
        "",
    ),
    Mutation(
        "settle", "conflicts have another bound",
        "'conflicts', 1) > 20 then",
        "'conflicts', 1) > 21 then", seldom=True,
    ),
    Mutation(
        "settle", "a conflict counts as an attempt",
        "  redis.call('HINCRBY', job.name, 'forgiven', 1)\n",
        "",
    ),
    Mutation(
        "settle", "a parked job keeps its lock and token",
        "  settle.release(c, id, job, 'handles', handles, 'till', limit > 0 and job.started + limit or 0)\n",
        "  redis.call('ZREM', c.P .. 'leases', id)\n",
    ),
    Mutation(
        "settle", "nobody looks at a parked job",
        "  redis.call('ZADD', c.P .. 'parked:' .. record.app_of(c, job), c.now, id)\n",
        "",
    ),
    Mutation(
        "states", "a state is not counted",
        "  redis.call('SADD', c.P .. 'state:' .. state, id)\n",
        "",
    ),
    Mutation(
        "states", "a state is counted of a job that left it",
        "    redis.call('SREM', c.P .. 'state:' .. state, id)\n",
        "",
    ),
    Mutation(
        "settle", "a job behind is not woken in every line",
        "  for _, key in ipairs(keys) do admit.lane(c, key) end\n",
        "  admit.lane(c, keys[1])\n",
    ),
    Mutation(
        "settle", "a job that is over keeps one of its lines",
        "  for _, key in ipairs(keys) do redis.call('ZREM', c.P .. 'line:' .. key, id) end",
        "  redis.call('ZREM', c.P .. 'line:' .. keys[1], id)",
    ),
    Mutation(
        "retention", "what is over is kept for ever",
        "  redis.call('PEXPIRE', job.name, keep)\n",
        "",
    ),
    Mutation(
        "settle", "a job that is over is still due, or held",
        "  if job.seldom then states.leave(c, id, job) end\n",
        "",
    ),
    Mutation(
        "retention", "an alias outlives its job",
        "  if job.aliases then redis",
        "  if false then redis", seldom=True,
    ),
    Mutation(
        "retention", "the ids that melted into a job are forgotten though it is tried again",
        "  redis.call('ZREM', c.P .. 'melted', id)\nend",
        "end", seldom=True,
    ),
    Mutation(
        "settle", "a success whose result is owed keeps too little",
        "job.class and not owed then",
        "job.class then",
    ),
    Mutation(
        "runner", "a runner whose job succeeded is not known any more when it asks again",
        "job.state == 'succeeded' and job.token == retention",
        "false and job.token == retention",
    ),
    Mutation(
        "settle", "a parked job is not told that its child ended",
        "  if job.parent then states.look_at(c, job.parent) end\n",
        "", seldom=True,
    ),
    Mutation(
        "settle", "a lost sub-result counts as no loss",
        "  if kind == 'lost' then return count_loss(c, id, job, detail) end\n",
        "",
    ),
    Mutation(
        "parked", "a sub-task of a living worker is lost",
        "      if gone or lives and lives ~= incarnation then",
        "      if true then",
    ),
    Mutation(
        "parked", "sub-results of an older attempt end a job",
        " or job.last ~= last",
        "", seldom=True,
    ),
    Mutation(
        "runner", "a job parks though it would wait for itself",
        "rings.find(c, id, detail)",
        "false",
    ),
    Mutation(
        "rings", "a ring is seen in its own lane only",
        "        if not nodes[id] then\n",
        "        if not nodes[id] and i < 4 then\n",
    ),
    Mutation(
        "rings", "of those before a job the first one counts only",
        "  if place > stop then add(groups",
        "  if false then add(groups",
    ),
    Mutation(
        "rings", "a job is refused though those beside it may end",
        "(job.weight and place or place - limit + 1)",
        "place",
    ),
    Mutation(
        "sweep", "a ring that closes later lasts",
        "    if why then break_ring(c, ring, why) end\n",
        "",
    ),
    Mutation(
        "job", "a job is retried, and once more when it was due",
        "  redis.call('ZREM', c.P .. 'due', id)\n",
        "",
    ),
    Mutation(
        "job", "a job that is tried again overtakes all",
        "line.new_score(c, redis.call('HGET', name, 'priority') or 0, to)",
        "0",
    ),
    Mutation(
        "job", "a job that is tried again is counted in two states",
        "  redis.call('HINCRBY', c.P .. 'counts', job.state, -1)\n",
        "",
    ),
    Mutation(
        "job", "attempts of before count against a job that is tried again",
        "'forgiven', job.attempt or 0, ",
        "",
    ),
    Mutation(
        "retention", "the record of a job that is tried again vanishes",
        "  redis.call('PERSIST', job.name)\n",
        "",
    ),
    Mutation(
        "cancel", "a running job that was cancelled goes on",
        "'stop', 'cancelled', ",
        "",
    ),
    Mutation(
        "cancel", "a rollback is cancelled",
        "  if job.phase == 'rollback' then return 'rolling_back' end\n",
        "", seldom=True,
    ),
    Mutation(
        "cancel", "a cancelled job is still ready",
        "if job.state == 'ready' then ready.drop(c, id, job) end\n",
        "",
    ),
    Mutation(
        "settle", "a rollback that waits for its sub-results has failed",
        "    if kind == 'parked' then return park(c, id, job, detail) end\n",
        "",
    ),
    Mutation(
        "settle", "a step of a rollback is begun twice",
        "record.back_of(job) + 1, following.task",
        "record.back_of(job), following.task",
    ),
    Mutation(
        "settle", "a parked rollback holds its lane as long as the job might",
        "  if undoing then redis.call('ZADD', c.P .. 'expiry', job.started + record.max_lifetime(job), id) end\n",
        "",
    ),
    Mutation(
        "settle", "sub-results of the attempt before a rollback that parks go on",
        "  if stale then redis.call('HSET', job.name, 'stale', stale) end\n",
        "", seldom=True,
    ),
    Mutation(
        "job", "a parked rollback is counted in two states",
        "  count.parked = count.parked - rolling.parked\n",
        "",
    ),
    Mutation(
        "cancel", "a rollback is cancelled between two of its steps",
        " and record.back_of(job) == 0\n",
        "\n", seldom=True,
    ),
    Mutation(
        "cancel", "who is admitted by a replacement is replaced, too",
        "others[#others + 1] = id end",
        "cancel.job(c, id, 'replaced by ' .. by, 'the lane') end",
    ),
]  # fmt: skip
