"""The nodes that ended without leaving in order during the last hour, and who has their jobs now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from shlex import quote
from typing import Literal

from coordinator.diagnosis.finding import Finding
from coordinator.diagnosis.snapshot import Snapshot
from coordinator.jobs import record
from coordinator.jobs.record import TERMINAL, Job
from coordinator.store.reading import FieldReader, text_in
from coordinator.store.times import span_text, to_ms

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


def lost_nodes(look: Snapshot) -> list[LostNode]:
    """The lost nodes of the last hour, the newest first. An entry that is damaged counts as none."""
    read = look.store.read("HGETALL", look.store.key("lost-nodes"))
    entries = {text_in(name): _Entry.of(text_in(text)) for name, text in read.items()}
    recent = {name: one for name, one in entries.items() if one and to_ms(one.at) > look.clock.wall - _REMEMBERED}
    ids = [job_id for one in recent.values() for job_id in one.jobs]
    jobs = {job.id: job for job in record.read_many(look.store, ids)} if ids else {}
    living = {node.name for node in look.living} if recent else set()
    found = [
        LostNode(
            name, one.at, one.host, one.app, one.count,
            tuple(_held(jobs[job_id], name not in living and name) for job_id in one.jobs if job_id in jobs),
            name in living,
        )
        for name, one in recent.items()
    ]  # fmt: skip
    return sorted(found, key=lambda one: one.at, reverse=True)


def of_lost(look: Snapshot) -> Iterator[Finding]:
    for one in lost_nodes(look):
        again = ", and is back" if one.back else ""
        said = f"it was killed or cut off {span_text((look.clock.wall - to_ms(one.at)) / 1000)} ago{again}; {one}"
        way_out = f"celery -A APP worker -n {quote(one.name)}  # the logs of its host {one.host} say why it ended"
        yield Finding("warning", "node.lost", f"node {one.name}", said, way_out)


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of lost-nodes."""

    at: datetime
    host: str
    app: str
    count: int
    jobs: list[str]

    @classmethod
    def of(cls, text: str) -> _Entry | None:
        at, _, about = (*text.split(" ", 2), "", "")[:3]
        reader = FieldReader({"at": at, "about": about})
        when, fields = reader.instant("at"), reader.json("about", dict) or {}
        host, app, count, jobs = (fields.get(name) for name in ("host", "app", "count", "jobs"))
        if when is None or not isinstance(count, int):
            return None
        return cls(when, str(host), str(app), count, [job_id for job_id in str(jobs).split("\n") if job_id])


def _held(job: Job, lost: str | Literal[False]) -> HeldJob:
    """`lost`: the node that held it, where that is not back: its claim is none any more."""
    return HeldJob(job.id, job.state, job.node if job.state in _CLAIMED and job.node != lost else None)


def _counted(count: int) -> str:
    return f"it held {count} jobs" if count != 1 else "it held 1 job"
