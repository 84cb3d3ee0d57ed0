"""The search in the bar: finds jobs, lanes, nodes, entries, quotas, events and tasks by a name or the begin of one, and
what extensions have by names (`Pages.finders`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from coordinator.core.fleet.nodes import Nodes
from coordinator.core.jobs.record import ids_like
from coordinator.core.jobs.validation import shown_lane, stored_lane
from coordinator.errors import UnknownJob
from coordinator.ops.dashboard.extend import Finder, Hit, Query
from coordinator.ops.dashboard.show import CUT

EACH = 8  # hits of one kind
_SCANS = 1.0  # seconds for which the names of records are looked through


def hits(query: Query, finders: Iterable[Finder]) -> list[Hit]:
    """Return what has the name `q`, or a name that begins so. An id may be cut, as pages show it: `0b9a7c39…`."""
    wanted = query.text("q")
    found = [hit for finder in (*_FINDERS, *finders) for hit in finder(query, wanted)]
    return [hit for hit in found if hit.name == wanted] or found


def _jobs(query: Query, wanted: str) -> Iterator[Hit]:
    c = query.coordinator
    if CUT in wanted:
        begin, _, end = wanted.partition(CUT)
        for job_id in ids_like(c.store, begin, end, EACH, _SCANS):
            yield Hit("job", job_id, "/job", {"id": job_id})
        return
    with suppress(UnknownJob):
        yield Hit("job", wanted, "/job", {"id": c.job(wanted).id})


def _lanes(query: Query, wanted: str) -> Iterator[Hit]:
    keys = [lane.key for lane in query.coordinator.lanes(wanted, None, EACH)]
    if stored_lane(wanted) in keys:
        yield Hit("lane", wanted, "/lane", {"key": wanted})
    elif len(keys) > 1:
        yield Hit("lanes", f"{wanted}*", "/lanes", {"prefix": wanted})
    for key in keys:
        if key != stored_lane(wanted):
            yield Hit("lane", shown_lane(key), "/lane", {"key": shown_lane(key)})


def _nodes(query: Query, wanted: str) -> Iterator[Hit]:
    nodes = [node for node in Nodes(query.coordinator.store).all() if node.alive]
    names = sorted(node.name for node in nodes)
    for name in _like(names, wanted):
        yield Hit("node", name, "/node", {"name": name})
    for task in _like(sorted({task for node in nodes for task in node.tasks}), wanted):
        yield Hit("task", task, "/jobs", {"task": task})


def _named(query: Query, wanted: str) -> Iterator[Hit]:
    c = query.coordinator
    for kind, names in {
        "entry": [entry.name for entry in c.entries.all(wanted, EACH)],
        "quota": [quota.name for quota in c.quotas(wanted, EACH).quotas],
        "event": [event.name for event in c.events(wanted, EACH).events],
    }.items():
        for name in names:
            yield Hit(kind, name, f"/{kind}", {"name": name})


def _like(names: Sequence[str], wanted: str) -> list[str]:
    """Return those names that have the text in them."""
    return [name for name in names if wanted.casefold() in name.casefold()][:EACH]


_FINDERS: Sequence[Finder] = (_jobs, _lanes, _nodes, _named)
