"""Faults in how attempts and jobs end, and what an operator does about it."""

from tests.model.clock import Mutation

MUTATIONS = [
    Mutation(
        "job_finish", "an outcome is accepted from whoever tells it",
        "job.token ~= token and job.last ~= token",
        "false",
    ),
    Mutation(
        "job_finish", "an outcome told again counts twice",
        "  elseif job.token ~= token then\n    state = redis.call('HGET', job.name, 'said') -- whatever it is since\n",
        "",
    ),
    Mutation(
        "job_finish", "the outcome of a condemned attempt counts",
        "elseif job.condemned == token then",
        "elseif false then", seldom=True,
    ),
    Mutation(
        "job_finish", "a loss that was none is counted",
        "      job.losses = redis.call('HINCRBY', job.name, 'losses', -1)\n",
        "      job.losses = job.losses - 1\n", seldom=True,
    ),
    Mutation(
        "conclude", "a job that waits for its retry keeps its locks",
        "  if token ~= '' then unlock_all(keys_of(job.keys), token, job.slots) end\n",
        "",
    ),
    Mutation(
        "conclude", "a job that is parked has a lease",
        "  redis.call('ZREM', P .. 'leases', id)\n",
        "",
    ),
    Mutation(
        "conclude", "a retry that never comes",
        "  redis.call('ZADD', P .. 'due', now + delay, id)\n",
        "",
    ),
    Mutation(
        "conclude", "a job is rolled back twice",
        " or job.phase == 'undone'",
        "", seldom=True,
    ),
    Mutation(
        "conclude", "a job is rolled back that was never started",
        "not job.taken or",
        "",
    ),
    Mutation(
        "conclude", "a double fault is not counted",
        "    redis.call('HINCRBY', P .. 'counts', 'faults', 1)\n",
        "", seldom=True,
    ),
    Mutation(
        "conclude", "nothing is held for an operator",
        "  if not job.hold or",
        "  if",
    ),
    Mutation(
        "conclude", "a held lane is held for ever",
        "  redis.call('ZADD', P .. 'expiry', 'NX', job.taken + limits_of(job.limits)[4], id)\n",
        "",
    ),
    Mutation(
        "ending", "a cancelled job succeeds",
        "  if job.stop then return give_up(id, job, job.stop) end\n",
        "",
    ),
    Mutation(
        "ending", "conflicts have another bound",
        "'conflicts', 1) > 20 then",
        "'conflicts', 1) > 21 then", seldom=True,
    ),
    Mutation(
        "ending", "a conflict counts as an attempt",
        "  redis.call('HINCRBY', name, 'forgiven', 1)\n",
        "",
    ),
    Mutation(
        "ending", "a parked job keeps its lock and token",
        "  let_go(id, job, 'handles', handles, 'till', till)\n",
        "  redis.call('ZREM', P .. 'leases', id)\n",
    ),
    Mutation(
        "ending", "nobody looks at a parked job",
        "  redis.call('ZADD', P .. 'parked:' .. app_of(job), now, id)\n",
        "",
    ),
    Mutation(
        "apart", "a state is not counted",
        "  redis.call('SADD', P .. 'state:' .. state, id)\n",
        "",
    ),
    Mutation(
        "apart", "a state is counted of a job that left it",
        "    redis.call('SREM', P .. 'state:' .. state, id)\n",
        "",
    ),
    Mutation(
        "leave", "a job behind is not woken in every line",
        "  for _, key in ipairs(keys) do admit(key) end\n",
        "  admit(keys[1])\n",
    ),
    Mutation(
        "leave", "a job that is over keeps one of its lines",
        "  for _, key in ipairs(keys) do redis.call('ZREM', P .. 'line:' .. key, id) end",
        "  redis.call('ZREM', P .. 'line:' .. keys[1], id)",
    ),
    Mutation(
        "leave", "what is over is kept for ever",
        "  redis.call('PEXPIRE', name, keep)\n",
        "",
    ),
    Mutation(
        "leave", "a job that is over is still due, or held",
        "    away(id, job)\n",
        "",
    ),
    Mutation(
        "leave", "an alias outlives its job",
        "  if job.aliases then -- the ids",
        "  if false then -- the ids", seldom=True,
    ),
    Mutation(
        "leave", "a parked job is not told that its child ended",
        "    look_at(job.parent)\n",
        "", seldom=True,
    ),
    Mutation(
        "job_unpark", "sub-results of an older attempt end a job",
        " or job.last ~= last",
        "", seldom=True,
    ),
    Mutation(
        "job_retry", "a job is retried, and once more when it was due",
        "  redis.call('ZREM', P .. 'due', id)\n",
        "",
    ),
    Mutation(
        "job_retry", "a job that is tried again overtakes all",
        "new_score(redis.call('HGET', name, 'priority') or 0, to)",
        "0",
    ),
    Mutation(
        "job_retry", "a job that is tried again is counted in two states",
        "  redis.call('HINCRBY', P .. 'counts', job.state, -1)\n",
        "",
    ),
    Mutation(
        "job_retry", "attempts of before count against a job that is tried again",
        "'forgiven', job.attempt or 0, ",
        "",
    ),
    Mutation(
        "job_retry", "the record of a job that is tried again vanishes",
        "  redis.call('PERSIST', name)\n",
        "",
    ),
    Mutation(
        "job_cancel", "a running job that was cancelled goes on",
        "'stop', 'cancelled', ",
        "",
    ),
    Mutation(
        "job_cancel", "a rollback is cancelled",
        "if job.phase == 'rollback' then return {'rolling_back', rung} end\n",
        "", seldom=True,
    ),
    Mutation(
        "job_cancel", "a cancelled job is still ready",
        "if job.state == 'ready' then drop(id, job) end\n",
        "",
    ),
]  # fmt: skip
