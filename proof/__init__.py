"""The laboratory: real processes under faults that a seed chooses, and judges of what their tasks wrote down.

`python -m proof --help` says how to run it; docs/proof.md what it has shown.
"""

LANES, SWARM_LANES = 10, 200
QUOTAS = {
    "units/a": {"units": 3}, "units/b": {"units": 2},
    "pace": {"count": 1, "seconds": 1, "burst": 4}, "both": {"units": 3, "count": 3, "seconds": 2, "burst": 6},
}  # fmt: skip
"""Units that may be in use at once; `count` starts in so many seconds, and `burst` more at once."""
USES = [
    {"units/a": 1}, {"units/b": 1}, {"units/a": 2}, {"units/a": 1, "units/b": 1}, {"pace": 1},
    {"pace": 1, "units/b": 1}, {"both": 1}, {"both": 1, "units/a": 3},
]  # fmt: skip
"""What jobs of a client use."""
PAST, PAST_AT_ONCE = "yearly", 2
"""An entry whose instants of 40 years are run while the nemesis rages, and how many at once."""
LEASE = 3.0  # s, of jobs, locks and grabs
IDLE = 3.0  # s after which the sorter flushes
OFFSETS = (0, 0, 0, 0, 5, -40, 3600, -3600)  # s, of the clock of a node or client, where some of those are wrong
