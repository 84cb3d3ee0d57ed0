"""Faults in sorters: what is held, when it goes, in which order, and who asks twice."""

from proof.model.mutants.mutant import Mutant

MUTANTS = [
    Mutant("sorter.sorter_add", "an order asked for again is held twice", "redis.call('EXISTS', name) == 1", "false"),
    Mutant("sorter.sorter_add", "an equal id is taken for the same order", " == asked", ""),
    Mutant(
        "sorter.sorter_add",
        "orders stand by when they came",
        "sorter, 0",
        "sorter, redis.call('ZCARD', c.P .. 'collected:' .. sorter)",
    ),
    Mutant(
        "sorter.sorter_add",
        "two sorters share what they hold",
        "'collected:' .. sorter",
        "'collected:' .. string.sub(sorter, 1, 1)",
    ),
    Mutant(
        "sorter.put_off",
        "a flush that is due is put off by who comes",
        "not tonumber(due) or tonumber(due) > c.now",
        "true",
    ),
    Mutant(
        "sorter.put_off",
        "a trickle of orders is held for ever",
        "math.min(due, (tonumber(first) or c.now) + longest)",
        "due",
    ),
    Mutant("sorter.sorter_flush", "who was put in line is left in the batch", "redis.call('ZREM'"),
    Mutant("sorter.sorter_flush", "a batch goes in line from its end", "'ZRANGE'", "'ZREVRANGE'"),
    Mutant("sorters.remove", "who was cancelled is flushed", "redis.call('ZREM', collected"),
]
SELDOM = [
    Mutant("sorter.sorter_add", "a file has two orders", "'seen'"),
    Mutant(
        "sorter.sorter_add",
        "a late one joins the batch that is sealed",
        "'collected:' .. sorter, 0",
        "(redis.call('EXISTS', c.P .. 'batch:' .. sorter) == 1 and 'batch:' or 'collected:') .. sorter, 0",
    ),
    Mutant("sorter.put_off", "nobody looks at what a sorter holds", "sorters.schedule"),
    Mutant("sorter.sorter_flush", "a flush seals anew what came meanwhile", "redis.call('EXISTS', batch) == 0", "true"),
    Mutant(
        "sorter.sorter_flush",
        "a flush takes what is not sealed",
        "redis.call('RENAME', collected, batch)",
        "batch = collected",
    ),
    Mutant(
        "sorter.sorter_flush",
        "a step takes more off the batch than it puts in line",
        "sorters.schedule",
        "redis.call('ZREMRANGEBYRANK', batch, 0, 0) sorters.schedule",
    ),
    Mutant(
        "sorter.sorter_flush",
        "a batch is left behind after its first step",
        "sorters.schedule(c",
        "redis.call('ZREM', c.P .. 'sorters'",
    ),
    Mutant(
        "sorter.put_in_line", "an order that is to start later starts at once", "not_before and not", "false and not"
    ),
    Mutant("sorter.put_in_line", "an order that was let go counts as held", "'state:collected'"),
    Mutant("sorter.put_in_line", "an order's priority is forgotten", "priority or ", ""),
    Mutant(
        "sorters.schedule", "a sorter that is not due yet is flushed", "'sorters', tonumber(due) or 0", "'sorters', 0"
    ),
    Mutant("sorters.remove", "who was cancelled in a batch is flushed", "'batch:'"),
    Mutant("sorters.remove", "a sorter goes by times of orders that are gone", "'sorter:'"),
    Mutant("sorter.sorter_forget", "a file that replaced one is forgotten with it", " == args[i + 1]", ""),
]
