"""Faults in the first fence of a server that begins."""

from proof.model.mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "locks.next_fence",
        "starts that are lost add to the last fence",
        " + MARGIN, math.max(last, before or 0) + SPACE)",
        ", last + 1) + MARGIN",
    ),
    Mutant(
        "locks.next_fence",
        "a server that begins is ahead of the clock only",
        "math.max(clock + MARGIN, math.max(last, before or 0) + SPACE)",
        "clock + MARGIN",
    ),
    Mutant(
        "locks.next_fence",
        "a server that begins is ahead of the last fence only",
        "math.max(clock + MARGIN, math.max(last, before or 0) + SPACE)",
        "last + SPACE",
    ),
    Mutant("locks.begins", "a server goes on as if it had not begun", "not before or terms[c.P] ~= known", "false"),
]
