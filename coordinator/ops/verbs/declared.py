"""Lists all verbs of the library."""

from __future__ import annotations

from functools import cache

from coordinator.core.events.event import Event
from coordinator.core.verbs import Verb, verbs_in
from coordinator.ops.verbs.findings import FindingVerbs
from coordinator.ops.verbs.jobs import JobVerbs
from coordinator.ops.verbs.lanes import LaneVerbs
from coordinator.ops.verbs.nodes import NodeVerbs
from coordinator.ops.verbs.quotas import QuotaVerbs
from coordinator.ops.verbs.requests import RequestVerbs
from coordinator.scheduler.steering import Entries
from coordinator.sorters.sorter import Sorter


@cache
def verbs() -> dict[str, Verb]:
    """By name."""
    return verbs_in(JobVerbs, LaneVerbs, QuotaVerbs, NodeVerbs, Entries, Sorter, Event, RequestVerbs, FindingVerbs)
