"""The nodes that ended without leaving in order during the last hour, and who has their jobs now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from shlex import quote

from coordinator.diagnosis.finding import Finding
from coordinator.fleet.nodes import Nodes
from coordinator.jobs import record
from coordinator.jobs.record import TERMINAL, Job
from coordinator.store.client import Store
from coordinator.store.reading import FieldReader, text_in
from coordinator.store.times import instant, span_text, to_ms

_CLAIMED = {*TERMINAL, "running", "rolling_back", "parked", "held"}
_REMEMBERED = 3_600_000  # ms; functions/rules/nodes.lua forgets them at the next loss


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job that a lost node held. `node`: the one that has or had it since; None: it waits for one."""

    id: str
    state: str
    node: str | None

    def __str__(self) -> str:
        return f"{self.id} {self.state.replace('_', ' ')}" + (f" on {self.node}" if self.node else "")


@dataclass(frozen=True, slots=True)
class LostNode:
    """A node whose worker was killed, or that fell silent. `count`: how many jobs it held; `jobs`: the first 20 of them
    that still have a record. `back`: a node of this name lives again.
    """

    name: str
    at: datetime
    host: str
    app: str
    count: int
    jobs: tuple[HeldJob, ...]
    back: bool

    def __str__(self) -> str:
        """What became of its jobs: 3 jobs: 7f3 runs on cn2, a41 succeeded on cn3, 09c waits."""
        if not self.count:
            return "it held no job"
        more = [f"{self.count - len(self.jobs)} more"] if self.count > len(self.jobs) else []
        return f"{_counted(self.count)}: {', '.join([*map(str, self.jobs), *more])}"


def lost_nodes(store: Store) -> list[LostNode]:
    """The lost nodes of the last hour, the newest first."""
    entries = store.read("HGETALL", store.key("lost-nodes"))
    if not entries:
        return []
    since, living = instant(store.clock().wall - _REMEMBERED), {node.name for node in Nodes(store).living()}
    found = [_lost(store, text_in(name), text_in(text), living) for name, text in entries.items()]
    return sorted((one for one in found if one and one.at > since), key=lambda one: one.at, reverse=True)


def of_lost(store: Store) -> Iterator[Finding]:
    for one in lost_nodes(store):
        again = ", and is back" if one.back else ""
        said = f"it was killed or cut off {span_text((store.clock().wall - to_ms(one.at)) / 1000)} ago{again}; {one}"
        way_out = f"celery -A APP worker -n {quote(one.name)}  # the logs of its host {one.host} say why it ended"
        yield Finding("warning", "node.lost", f"node {one.name}", said, way_out)


def _lost(store: Store, name: str, text: str, living: set[str]) -> LostNode | None:
    """None: the entry is damaged."""
    at, _, about = text.partition(" ")
    reader = FieldReader({"at": at, "about": about})
    when, fields = reader.instant("at"), reader.json("about", dict)
    if when is None or fields is None:
        return None
    ids = [job_id for job_id in str(fields.get("jobs", "")).split("\n") if job_id]
    jobs = tuple(_held(job, "" if name in living else name) for job in record.read_many(store, ids))
    return LostNode(
        name, when, str(fields.get("host")), str(fields.get("app")), fields.get("count", 0), jobs, name in living
    )


def _held(job: Job, lost: str) -> HeldJob:
    return HeldJob(job.id, job.state, job.node if job.state in _CLAIMED and job.node != lost else None)


def _counted(count: int) -> str:
    return f"it held {count} jobs" if count != 1 else "it held 1 job"
