"""Faults in grabs: who wins, who is believed, what is kept."""

from tests.model.clock import Mutation

MUTATIONS = [
    Mutation(
        "grab", "a completed instance is grabbed again",
        " or grab.state == 'complete' then",
        " then",
    ),
    Mutation(
        "grab", "an instance is abandoned while its winner lives",
        "if state ~= 'running' or token ~= grab.token then",
        "if true then",
    ),
    Mutation(
        "grab", "the winner that is gone is not replaced",
        "if state ~= 'running' or token ~= grab.token then",
        "if token ~= grab.token then",
    ),
    Mutation(
        "grab", "a lapsed lease is not ended where somebody looks",
        "  settle.end_lapsed(c, lane)\n  local grab",
        "  local grab",
    ),
    Mutation(
        "grab", "a lost reply makes the winner a loser",
        "  if grab.state == 'running' and grab.token == token then return told('won', grab) end\n",
        "",
    ),
    Mutation(
        "grab", "the completion of one that was replaced counts",
        "  if grab.token ~= token then return 'lost' end\n",
        "",
    ),
    Mutation(
        "grab", "the completion of one whose lease is over counts",
        "  if grab.state ~= 'running' then return 'lost' end\n",
        "",
    ),
    Mutation(
        "grab", "a completion asked again is refused",
        "  if grab.state == state then return 'ended' end\n",
        "",
    ),
    Mutation(
        "grab", "the lane of an instance stays held when it has ended",
        "  held.give_up(c, id, token)\n",
        "",
    ),
    Mutation(
        "grab", "attempts are not counted",
        "(tonumber(grab.attempt) or 0) + 1",
        "1",
    ),
    Mutation(
        "grab", "the next attempt shows the end of the one before",
        "  redis.call('HDEL', grab.name, 'ended', 'value')\n",
        "",
    ),
    Mutation(
        "grab", "a finished record is dropped with its lease",
        "keep_for(c, lane, key, instance, tonumber(keep))",
        "keep_for(c, lane, key, instance, 60000)",
    ),
    Mutation(
        "grab", "a key is forgotten before its last instance",
        "redis.call('ZADD', keys, last, key)",
        "redis.call('ZADD', keys, c.wall + ms, key)",
    ),
]  # fmt: skip
