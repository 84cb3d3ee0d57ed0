"""Faults in what the clock, the wardens and the nodes bring."""

from tests.model.clock import Mutation

MUTATIONS = [
    Mutation(
        "sweep", "after a silence the whole fleet is run twice",
        "if c.now > grace then",
        "if true then", seldom=True,
    ),
    Mutation(
        "sweep", "a retry that is due is forgotten",
        "  if job and job.state == 'retrying' then settle.put_back(c, id, job) end\n",
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
        "job.state ~= 'running' and job.phase",
        "job.phase", seldom=True,
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
        "node", "a node can never come back",
        " and tonumber(redis.call('ZSCORE', c.P .. 'alive', node) or '0') > c.now",
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
