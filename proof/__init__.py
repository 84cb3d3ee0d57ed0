"""The laboratory: real processes under faults that a seed chooses, and judges of what their tasks wrote down.

`python -m proof --help` says how to run it; docs/proof.md what it has shown.
"""

LANES, WIDE, LIMIT = 10, 2, 3  # lanes of one at a time, lanes of more, and how many more
LEASE = 3.0  # s, of jobs, locks and grabs
IDLE = 3.0  # s after which the sorter flushes
