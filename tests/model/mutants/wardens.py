"""Faults in what the clock, the wardens and the nodes bring."""

from tests.model.clock import Mutation

MUTATIONS = [
    Mutation(
        "base", "after a silence the whole fleet is run twice",
        "    c.uptime = uptime + RESOLUTION\n    c.away = now + c.gap - c.uptime\n",
        "    c.uptime = now - c.away\n",
    ),
    Mutation(
        "base", "after a silence holders have no time to come back",
        "c.away = now + c.gap - c.uptime",
        "c.away = now - c.uptime",
    ),
    Mutation(
        "base", "a silence that follows upon another never ends",
        "c.uptime = uptime + RESOLUTION",
        "c.uptime = uptime + 0",
    ),
    Mutation(
        "base", "a server whose clock goes back makes all that is due an hour late",
        "  if passed < 0 then offset = offset - passed end\n",
        "",
    ),
    Mutation(
        "locks", "a lock that Redis keeps too long keeps its lane",
        "  if left then set(c, name, token, ttl) end\n  return not held or left\n",
        "  return not held\n",
    ),
    Mutation(
        "sweep", "a start that people named does not go by the wall clock",
        "start_due(c, 'starts', c.wall)",
        "start_due(c, 'starts', c.now)",
    ),
    Mutation(
        "sweep", "an end that people named does not go by the wall clock",
        "expire(c, 'latest', c.wall)",
        "expire(c, 'latest', c.now)",
    ),
    Mutation(
        "sweep", "a retry that is due is forgotten",
        "    if job.state == 'retrying' then settle.put_back(c, id, job) end\n",
        "",
    ),
    Mutation(
        "sweep", "a job with a start time loses its place",
        "redis.call('HGET', job.name, 'score'))",
        "redis.call('INCR', c.P .. 'sequence'))", seldom=True,
    ),
    Mutation(
        "sweep", "what expired is still ready",
        "    if job.state == 'ready' then ready.drop(c, id, job) end\n",
        "",
    ),
    Mutation(
        "sweep", "a lifetime ends twice: by the sweep, while its process runs",
        "states.TERMINAL[job.state] or job.state == 'running' or",
        "states.TERMINAL[job.state] or", seldom=True,
    ),
    Mutation(
        "settle", "a rollback that nobody can run holds its lane for ever",
        "  redis.call('ZADD', c.P .. 'expiry', c.now + record.max_lifetime(job), id)\n",
        "  redis.call('ZREM', c.P .. 'expiry', id)\n",
    ),
    Mutation(
        "runner", "a stop meant for a released attempt hits the job that is wanted again",
        "  if redis.call('HGET', c.P .. 'job:' .. id, 'token') == token then record",
        "  if true then record",
    ),
    Mutation(
        "runner", "the entry of a runner that went on is dropped",
        "  if not holds(c, node, runner, token) then return 0 end\n"
        "  redis.call('HDEL'",
        "  if redis.call('HEXISTS', c.P .. 'work:' .. node, runner) == 0 then return 0 end\n"
        "  redis.call('HDEL'", seldom=True,
    ),
    Mutation(
        "runner", "progress is told by an attempt that is over",
        "  if redis.call('HGET', c.P .. 'job:' .. id, 'token') ~= token then return 0 end\n"
        "  redis.call('HSET'",
        "  redis.call('HSET'", seldom=True,
    ),
    Mutation(
        "admit", "a waiter for a lock that is dead is granted it",
        "    if pass_over(c, id, job, keys) then return true end\n",
        "",
    ),
    Mutation(
        "lock", "a waiter for a lock that asks is taken for dead",
        "    redis.call('HSET', job.name, 'seen', base.text_of(c.uptime))\n",
        "",
    ),
    Mutation(
        "locks", "after a silence of everybody the waiters are taken for dead",
        "c.uptime - seen >",
        "c.now - seen >", seldom=True,
    ),
    Mutation(
        "runner", "a lock is held beyond its lifetime",
        "    ours = ours and not is_outlived(c, id, job)\n",
        "",
    ),
    Mutation(
        "lock", "nobody knows what the code that waits for a lock holds",
        "  for i = 7, #args, 2 do rings.await(c, args[i], args[i + 1], id) end\n",
        "",
    ),
    Mutation(
        "job", "nobody knows for which job code waits",
        "  for i = 2, #args, 2 do rings.await(c, args[i], args[i + 1], other) end\n",
        "",
    ),
    Mutation(
        "node", "a node can never come back",
        " and tonumber(redis.call('ZSCORE', c.P .. 'alive', node) or '0') > c.uptime",
        "", seldom=True,
    ),
    Mutation(
        "node", "an old worker signs its successor off",
        "  if redis.call('HGET', c.P .. 'node:' .. node, 'incarnation') ~= incarnation then return 0 end\n",
        "",
    ),
    Mutation(
        "nodes", "a draining node takes jobs",
        "    redis.call('SREM', c.P .. 'classes:' .. node, class)\n",
        "", seldom=True,
    ),
    Mutation(
        "job", "a notice is sent twice",
        "      redis.call('ZADD', unsent, c.now + math.min(30000 * 2 ^ (tries - 1), 600000), id)\n",
        "", seldom=True,
    ),
]  # fmt: skip
