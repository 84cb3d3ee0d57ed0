"""The names of states and outcomes, as types: mypy and editors know each."""

from __future__ import annotations

from typing import Literal

Over = Literal["succeeded", "failed", "rolled_back", "double_fault", "cancelled", "expired"]
State = Literal[
    "waiting", "ready", "running", "scheduled", "collected", "retrying", "parked", "held", "rolling_back", Over
]
LaneState = Literal[State, "empty"]
Answer = Literal["started", "queued", "skipped", "coalesced", "duplicate", "collected", "lost"]
End = Literal["back", "front"]
Sorted = Literal["alphabetical", "natural"]
