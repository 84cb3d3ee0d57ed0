"""Faults in what the clock, the wardens and the nodes bring."""

from tests.model.clock import Mutation

MUTATIONS = [
    Mutation(
        "sweep", "after a silence the whole fleet is run twice",
        "if now > grace then",
        "if true then", seldom=True,
    ),
    Mutation(
        "sweep", "a retry that is due is forgotten",
        "  if job and job.state == 'retrying' then put_back(id, job) end\n",
        "",
    ),
    Mutation(
        "sweep", "a job with a start time loses its place",
        "redis.call('HGET', P .. 'job:' .. id, 'score'))",
        "redis.call('INCR', P .. 'sequence'))", seldom=True,
    ),
    Mutation(
        "sweep", "what expired is still ready",
        "    if job.state == 'ready' then drop(id, job) end\n",
        "",
    ),
    Mutation(
        "sweep", "a lifetime ends twice: by the sweep, while its process runs",
        "job.state ~= 'running' and job.phase",
        "job.phase", seldom=True,
    ),
    Mutation(
        "runner_condemn", "a stop meant for a released attempt hits the job that is wanted again",
        "if redis.call('HGET', P .. 'job:' .. id, 'token') ~= token then return 0 end\n",
        "",
    ),
    Mutation(
        "work_drop", "the entry of a runner that went on is dropped",
        " or string.sub(mine, 1, #token) ~= token",
        "", seldom=True,
    ),
    Mutation(
        "job_progress", "progress is told by an attempt that is over",
        "if redis.call('HGET', P .. 'job:' .. id, 'token') ~= token then return 0 end\n",
        "", seldom=True,
    ),
    Mutation(
        "node_register", "a node can never come back",
        " and tonumber(redis.call('ZSCORE', P .. 'alive', node) or '0') > now",
        "", seldom=True,
    ),
    Mutation(
        "node_leave", "an old worker signs its successor off",
        "if redis.call('HGET', P .. 'node:' .. node, 'incarnation') == incarnation then",
        "if true then",
    ),
    Mutation(
        "drain", "a draining node takes jobs",
        "    redis.call('SREM', P .. 'classes:' .. node, class)\n",
        "", seldom=True,
    ),
    Mutation(
        "notices_take", "a notice is sent twice",
        "    redis.call('ZADD', unsent, now + 10000, id)\n",
        "", seldom=True,
    ),
]  # fmt: skip
