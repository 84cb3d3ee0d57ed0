"""Faults in sorters: what is held, when it goes, in which order, and who asks twice."""

from tests.model.clock import Mutation

MUTATIONS = [
    Mutation(
        "sorter", "an order asked for again is held twice",
        "if redis.call('EXISTS', name) == 1 then",
        "if false then",
    ),
    Mutation(
        "sorter", "an equal id is taken for the same order",
        "redis.call('HGET', name, 'asked') == asked and 'collected' or 'duplicate'",
        "'collected'",
    ),
    Mutation(
        "sorter", "a file has two orders",
        "if path ~= '' and redis.call('HGET', c.P .. 'seen:' .. sorter, path) == identity then return 'seen' end\n",
        "", seldom=True,
    ),
    Mutation(
        "sorter", "a late one joins the batch that is sealed",
        "redis.call('ZADD', c.P .. 'collected:' .. sorter,",
        "local sealed = redis.call('EXISTS', c.P .. 'batch:' .. sorter) == 1\n"
        "redis.call('ZADD', c.P .. (sealed and 'batch:' or 'collected:') .. sorter,", seldom=True,
    ),
    Mutation(
        "sorter", "orders stand by when they came",
        "'collected:' .. sorter, 0,",
        "'collected:' .. sorter, redis.call('ZCARD', c.P .. 'collected:' .. sorter),",
    ),
    Mutation(
        "sorter", "two sorters share what they hold",
        "redis.call('ZADD', c.P .. 'collected:' .. sorter,",
        "redis.call('ZADD', c.P .. 'collected:' .. string.sub(sorter, 1, 1),",
    ),
    Mutation(
        "sorter", "a flush that is due is put off by who comes",
        "if not due or tonumber(due) > c.now then",
        "if true then",
    ),
    Mutation(
        "sorter", "a trickle of orders is held for ever",
        "due = math.min(due, first + longest)",
        "due = due",
    ),
    Mutation(
        "sorter", "nobody looks at what a sorter holds",
        "    redis.call('HSET', about, 'due', base.text_of(due))\n"
        "  end\n"
        "  sorters.schedule(c, sorter)\n",
        "    redis.call('HSET', about, 'due', base.text_of(due))\n"
        "  end\n", seldom=True,
    ),
    Mutation(
        "sorter", "a flush seals anew what came meanwhile",
        "if redis.call('EXISTS', batch) == 0 then",
        "if true then", seldom=True,
    ),
    Mutation(
        "sorter", "a flush takes what is not sealed",
        "redis.call('RENAME', collected, batch)",
        "batch = collected", seldom=True,
    ),
    Mutation(
        "sorter", "who was put in line is left in the batch",
        "  redis.call('ZREM', batch, member)\n",
        "",
    ),
    Mutation(
        "sorter", "a step takes more off the batch than it puts in line",
        "    put_in_line(c, string.match(member, '%z(.*)$'))\n"
        "    redis.call('ZREM', batch, member)\n"
        "  end\n",
        "    put_in_line(c, string.match(member, '%z(.*)$'))\n"
        "  end\n"
        "  redis.call('ZREMRANGEBYRANK', batch, 0, most)\n", seldom=True,
    ),
    Mutation(
        "sorter", "a batch goes in line from its end",
        "redis.call('ZRANGE', batch, 0, most - 1)",
        "redis.call('ZREVRANGE', batch, 0, most - 1)",
    ),
    Mutation(
        "sorter", "a batch is left behind after its first step",
        "  sorters.schedule(c, sorter)\n"
        "  return redis.call('ZCOUNT'",
        "  redis.call('ZREM', c.P .. 'sorters', sorter)\n"
        "  return redis.call('ZCOUNT'", seldom=True,
    ),
    Mutation(
        "sorter", "an order that is to start later starts at once",
        "if not_before and not base.is_past(c, not_before) then",
        "if false then", seldom=True,
    ),
    Mutation(
        "sorter", "an order that was let go counts as held",
        "  redis.call('SREM', c.P .. 'state:collected', id)\n",
        "", seldom=True,
    ),
    Mutation(
        "sorter", "an order's priority is forgotten",
        "line.new_score(c, priority or 0, 'back')",
        "line.new_score(c, 0, 'back')", seldom=True,
    ),
    Mutation(
        "sorters", "a sorter that is not due yet is flushed",
        "    redis.call('ZADD', c.P .. 'sorters', due, name)\n",
        "    redis.call('ZADD', c.P .. 'sorters', 0, name)\n", seldom=True,
    ),
    Mutation(
        "sorters", "who was cancelled is flushed",
        "  redis.call('ZREM', collected, member)\n",
        "",
    ),
    Mutation(
        "sorters", "who was cancelled in a batch is flushed",
        "  redis.call('ZREM', c.P .. 'batch:' .. name, member)\n",
        "", seldom=True,
    ),
    Mutation(
        "sorters", "a sorter goes by times of orders that are gone",
        "  if redis.call('EXISTS', collected) == 0 then redis.call('DEL', c.P .. 'sorter:' .. name) end\n",
        "", seldom=True,
    ),
    Mutation(
        "sorter", "a file that replaced one is forgotten with it",
        "redis.call('HGET', seen, args[i]) == args[i + 1]",
        "true", seldom=True,
    ),
]  # fmt: skip
