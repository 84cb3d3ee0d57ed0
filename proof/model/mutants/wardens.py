"""Faults in what the clock, the wardens and the nodes bring."""

from proof.model.mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "base.read_clock",
        "after a silence the whole fleet is run twice",
        "uptime + RESOLUTION\n    c.away = now + c.gap - c.uptime",
        "c.now - c.away",
    ),
    Mutant("base.read_clock", "after a silence holders have no time to come back", "+ c.gap ", ""),
    Mutant("base.read_clock", "a silence that follows upon another never ends", "+ RESOLUTION", "+ 0"),
    Mutant(
        "base.read_clock", "a server whose clock goes back makes all that is due an hour late", "if passed < 0 then"
    ),
    Mutant(
        "sweep.sweep", "a start that people named does not go by the wall clock", "'starts', c.wall", "'starts', c.now"
    ),
    Mutant(
        "sweep.sweep", "an end that people named does not go by the wall clock", "'latest', c.wall", "'latest', c.now"
    ),
    Mutant("sweep.start_due", "a retry that is due is forgotten", "settle.put_back"),
    Mutant("sweep.expire", "what expired is still ready", "ready.drop"),
    Mutant(
        "settle.undo",
        "a rollback that nobody can run holds its lane for ever",
        "'ZADD', c.P .. 'expiry', c.now + record.max_lifetime(job)",
        "'ZREM', c.P .. 'expiry'",
    ),
    Mutant(
        "runner.runner_condemn",
        "a stop meant for a released attempt hits the job that is wanted again",
        "redis.call('HGET', c.P .. 'job:' .. id, 'token') == token",
        "true",
    ),
    Mutant("admit.take_in", "a waiter for a lock that is dead is granted it", "pass_over"),
    Mutant("runner.lease_renew", "a lock is held beyond its lifetime", "is_outlived"),
    Mutant("lock.lock_take", "nobody knows what the code that waits for a lock holds", "rings.await"),
    Mutant("job.job_await", "nobody knows for which job code waits", "for i = 2, #"),
    Mutant("node.node_leave", "an old worker signs its successor off", "'node:'"),
]
SELDOM = [
    Mutant("locks.set_free", "a lock that Redis keeps too long keeps its lane", "held and is_over(c, held)", "false"),
    Mutant("lock.lock_wait", "a waiter for a lock that asks is taken for dead", "base.text_of"),
    Mutant(
        "sweep.start_due",
        "a job with a start time loses its place",
        "'HGET', job.name, 'score'",
        "'INCR', c.P .. 'sequence'",
    ),
    Mutant(
        "sweep.expire", "a lifetime ends twice: by the sweep, while its process runs", " job.state == 'running' or", ""
    ),
    Mutant(
        "runner.work_drop",
        "the entry of a runner that went on is dropped",
        "not holds(c, node, runner, token)",
        "redis.call('HEXISTS', c.P .. 'work:' .. node, runner) == 0",
    ),
    Mutant("runner.job_progress", "progress is told by an attempt that is over", "'token'"),
    Mutant("locks.is_silent", "after a silence of everybody the waiters are taken for dead", ".uptime", ".now"),
    Mutant("node.node_register", "a node can never come back", "> c.uptime", ">= 0"),
    Mutant("nodes.close", "a draining node takes jobs", "redis.call('SREM', c.P .. 'classes"),
    Mutant("job.notices_take", "a notice is sent twice", "math.min"),
]
