"""Faults in the first fence of a server that begins."""

from tests.model.clock import Mutation

_FIRST = "math.max(clock + MARGIN, math.max(last, before or 0) + SPACE)"

MUTATIONS = [
    Mutation("locks", "starts that are lost add to the last fence", _FIRST, "math.max(clock, last + 1) + MARGIN"),
    Mutation("locks", "a server that begins is ahead of the clock only", _FIRST, "clock + MARGIN"),
    Mutation("locks", "a server that begins is ahead of the last fence only", _FIRST, "last + SPACE"),
    Mutation(
        "locks",
        "a server goes on as if it had not begun",
        "  return not before or terms[c.P] ~= known\n",
        "  return false\n",
    ),
]
