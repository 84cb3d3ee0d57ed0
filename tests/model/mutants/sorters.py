"""Faults in sorters: what is held, when it goes, in which order, and who asks twice."""

from tests.model.clock import Mutation

MUTATIONS = [
    Mutation(
        "sorter_add", "an order asked for again is held twice",
        "if redis.call('EXISTS', name) == 1 then",
        "if false then",
    ),
    Mutation(
        "sorter_add", "an equal id is taken for the same order",
        "redis.call('HGET', name, 'asked') == asked and 'collected' or 'duplicate'",
        "'collected'",
    ),
    Mutation(
        "sorter_add", "a file has two orders",
        "if path ~= '' and redis.call('HGET', P .. 'seen:' .. sorter, path) == identity then return 'seen' end\n",
        "", seldom=True,
    ),
    Mutation(
        "sorter_add", "a late one joins the batch that is sealed",
        "redis.call('ZADD', P .. 'collected:' .. sorter,",
        "local sealed = redis.call('EXISTS', P .. 'batch:' .. sorter) == 1\n"
        "redis.call('ZADD', P .. (sealed and 'batch:' or 'collected:') .. sorter,",
    ),
    Mutation(
        "sorter_add", "orders stand by when they came",
        "'collected:' .. sorter, 0,",
        "'collected:' .. sorter, redis.call('ZCARD', P .. 'collected:' .. sorter),",
    ),
    Mutation(
        "sorter_add", "two sorters share what they hold",
        "redis.call('ZADD', P .. 'collected:' .. sorter,",
        "redis.call('ZADD', P .. 'collected:' .. string.sub(sorter, 1, 1),",
    ),
    Mutation(
        "sorter_add", "a flush that is due is put off by who comes",
        "if not due or tonumber(due) > now then",
        "if true then",
    ),
    Mutation(
        "sorter_add", "a trickle of orders is held for ever",
        "due = math.min(due, first + longest)",
        "due = due",
    ),
    Mutation(
        "sorter_add", "nobody looks at what a sorter holds",
        "schedule(sorter)\nreturn 'collected'",
        "return 'collected'", seldom=True,
    ),
    Mutation(
        "sorter_flush", "a flush seals anew what came meanwhile",
        "if redis.call('EXISTS', batch) == 0 then",
        "if true then",
    ),
    Mutation(
        "sorter_flush", "a flush takes what is not sealed",
        "redis.call('RENAME', collected, batch)",
        "batch = collected", seldom=True,
    ),
    Mutation(
        "sorter_flush", "who was put in line is left in the batch",
        "  redis.call('ZREM', batch, member)\n",
        "",
    ),
    Mutation(
        "sorter_flush", "a step takes more off the batch than it puts in line",
        "  let_go(string.match(member, '%z(.*)$'))\n  redis.call('ZREM', batch, member)\nend\n",
        "  let_go(string.match(member, '%z(.*)$'))\nend\nredis.call('ZREMRANGEBYRANK', batch, 0, ARGV[1])\n",
        seldom=True,
    ),
    Mutation(
        "sorter_flush", "a batch goes in line from its end",
        "redis.call('ZRANGE', batch, 0, ARGV[1] - 1)",
        "redis.call('ZREVRANGE', batch, 0, ARGV[1] - 1)",
    ),
    Mutation(
        "sorter_flush", "a batch is left behind after its first step",
        "schedule(sorter)\nring_readied(2000)",
        "redis.call('ZREM', P .. 'sorters', sorter)\nring_readied(2000)", seldom=True,
    ),
    Mutation(
        "sorter_flush", "an order that is to start later starts at once",
        "if job[4] and tonumber(job[4]) > now then",
        "if false then", seldom=True,
    ),
    Mutation(
        "sorter_flush", "an order that was let go counts as held",
        "  redis.call('SREM', P .. 'state:collected', id)\n",
        "", seldom=True,
    ),
    Mutation(
        "sorter_flush", "an order's priority is forgotten",
        "new_score(job[3] or 0, 'back')",
        "new_score(0, 'back')",
    ),
    Mutation(
        "sorting", "a sorter that is not due yet is flushed",
        "    redis.call('ZADD', P .. 'sorters', due, name)\n",
        "    redis.call('ZADD', P .. 'sorters', 0, name)\n", seldom=True,
    ),
    Mutation(
        "sorting", "who was cancelled is flushed",
        "  redis.call('ZREM', collected, member)\n",
        "",
    ),
    Mutation(
        "sorting", "who was cancelled in a batch is flushed",
        "  redis.call('ZREM', P .. 'batch:' .. name, member)\n",
        "", seldom=True,
    ),
    Mutation(
        "sorting", "a sorter goes by times of orders that are gone",
        "  if redis.call('EXISTS', collected) == 0 then redis.call('DEL', P .. 'sorter:' .. name) end\n",
        "", seldom=True,
    ),
    Mutation(
        "sorter_forget", "a file that replaced one is forgotten with it",
        "redis.call('HGET', seen, ARGV[i]) == ARGV[i + 1]",
        "true", seldom=True,
    ),
]  # fmt: skip
