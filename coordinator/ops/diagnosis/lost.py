"""Reads which nodes were killed or cut off during the last hour, and which nodes have their jobs now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from shlex import quote
from typing import Literal

from coordinator.core.finding import Finding
from coordinator.core.jobs import record
from coordinator.core.jobs.record import TERMINAL, Job
from coordinator.core.store.reading import FieldReader, text_in
from coordinator.core.store.times import span_text, to_ms
from coordinator.ops.diagnosis.snapshot import Snapshot

_CLAIMED = {*TERMINAL, "running", "rolling_back", "parked", "held"}
_REMEMBERED = 3_600_000  # ms for which a lost node is shown; rules/nodes.lua deletes older ones at the next loss


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job that a node held when it was lost. `node`: the node that has claimed the job since; None: the job waits."""

    id: str
    state: str
    node: str | None

    def __str__(self) -> str:
        return f"{self.id} {self.state.replace('_', ' ')}" + (f" on {self.node}" if self.node else "")


@dataclass(frozen=True, slots=True)
class LostNode:
    """A node whose worker was killed, or whose heartbeats stopped, at the instant `at`. `count`: how many jobs the node
    held; `jobs`: those of the first 20 that still have a record. `back`: True if a node of this name is alive again.
    """

    name: str
    at: datetime
    host: str
    app: str
    count: int
    jobs: tuple[HeldJob, ...]
    back: bool

    def __str__(self) -> str:
        """Say what became of the node's jobs, as in `it held 2 jobs: 7f3 running on cn2, 09c waiting`."""
        if not self.count:
            return "it held no job"
        more = [f"{self.count - len(self.jobs)} more"] if self.count > len(self.jobs) else []
        return f"{_counted(self.count)}: {', '.join([*map(str, self.jobs), *more])}"


def lost_nodes(snapshot: Snapshot) -> list[LostNode]:
    """Return the nodes that were lost within the last hour, the newest first. Damaged entries in Redis are left out."""
    read = snapshot.store.read("HGETALL", snapshot.store.key("lost-nodes"))
    entries = {text_in(name): _Entry.of(text_in(text)) for name, text in read.items()}
    recent = {
        name: entry for name, entry in entries.items() if entry and to_ms(entry.at) > snapshot.clock.wall - _REMEMBERED
    }
    ids = [job_id for entry in recent.values() for job_id in entry.jobs]
    jobs = {job.id: job for job in record.read_many(snapshot.store, ids)} if ids else {}
    living = {node.name for node in snapshot.living} if recent else set()
    nodes = [
        LostNode(
            name, entry.at, entry.host, entry.app, entry.count,
            tuple(_held(jobs[job_id], name not in living and name) for job_id in entry.jobs if job_id in jobs),
            name in living,
        )
        for name, entry in recent.items()
    ]  # fmt: skip
    return sorted(nodes, key=lambda node: node.at, reverse=True)


def of_lost(snapshot: Snapshot) -> Iterator[Finding]:
    for node in lost_nodes(snapshot):
        ago = span_text((snapshot.clock.wall - to_ms(node.at)) / 1000)
        message = f"it was killed or cut off {ago} ago{', and is back' if node.back else ''}; {node}"
        fix = f"celery -A APP worker -n {quote(node.name)}  # the logs of its host {node.host} say why it ended"
        yield Finding("warning", "node.lost", f"node {node.name}", message, fix)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A lost node, as the hash `lost-nodes` in Redis has it. `jobs`: ids."""

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
    """Describe a job that a lost node held. `lost`: the node's name, which the job's record keeps until another node
    claims the job; False: the node is alive again.
    """
    return HeldJob(job.id, job.state, job.node if job.state in _CLAIMED and job.node != lost else None)


def _counted(count: int) -> str:
    return f"it held {count} jobs" if count != 1 else "it held 1 job"
