"""Types that list the states of jobs and lanes, the outcomes of a submit and two options, for mypy and editors.

`Over`: the states in which a job has ended. `Answer`: the outcome of a submit. `End`: the end of a line at which a job
is put. `Sorted`: the order in which a sorter puts its jobs in line. `BADLY`: how jobs end by a fault, not by a person.
"""

from __future__ import annotations

from typing import Literal

Over = Literal["succeeded", "failed", "rolled_back", "double_fault", "cancelled", "expired"]
State = Literal[
    "waiting", "ready", "running", "scheduled", "collected", "collecting", "blocked", "retrying", "parked", "held",
    "rolling_back", Over,
]  # fmt: skip
LaneState = Literal[State, "empty"]
Answer = Literal["started", "queued", "skipped", "coalesced", "duplicate", "collected", "lost"]
End = Literal["back", "front"]
Sorted = Literal["alphabetical", "natural"]
BADLY: tuple[Over, ...] = ("failed", "rolled_back", "double_fault", "expired")
