"""Reports jobs that no living node can run: their task was renamed, or no node serves their queue any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from coordinator.fleet.nodes import Node
from coordinator.jobs import record
from coordinator.store.client import Store

_MOST = 1000  # ready jobs, and jobs behind each of them
_WAYS_OUT = "start one, or give them another task (`coordinator retarget`)"


class _Waiting(NamedTuple):
    id: str
    key: str
    app: str
    queue: str
    task: str


def unserved(store: Store, living: Sequence[Node]) -> list[str]:
    """Sentences about ready jobs, and jobs behind them, that none of these nodes can run."""
    served = {
        (app, queue, task) for node in living for app in ("", node.app) for queue in node.queues for task in node.tasks
    }
    tasks = {task for node in living for task in node.tasks}

    def not_served(ids: Sequence[str]) -> list[_Waiting]:
        return [job for job in _read(store, ids) if (job.app, job.queue, job.task) not in served]

    heads = not_served([job_id.decode() for job_id in store.read("SRANDMEMBER", store.key("state", "ready"), _MOST)])
    lines = store.read_many([("ZRANGE", store.key("line", job.key), 0, _MOST) for job in heads]) if heads else ()
    jobs = not_served(sorted({job_id.decode() for line in lines for job_id in line} | {job.id for job in heads}))
    unknown = Counter(job.task for job in jobs if job.task not in tasks)
    astray = Counter(f"{job.task} in {job.queue}" for job in jobs if job.task in tasks)
    return [
        *_sentences(unknown, "for a task that no node has"),
        *_sentences(astray, "in a queue that no node with their task serves"),
    ]


def _read(store: Store, ids: Sequence[str]) -> list[_Waiting]:
    """Read the jobs among these members of lines. Locks in plain code have no class, marks of a line no record."""
    records = zip(ids, record.fields_of_many(store, ids, "keys", "class", "task"), strict=True) if ids else ()
    classes = [(job_id, keys.split("\n")[0], kind.split("\n"), task) for job_id, (keys, kind, task) in records if kind]
    return [_Waiting(job_id, key, kind[0], kind[1], task) for job_id, key, kind, task in classes]


def _sentences(count: Counter[str], what: str) -> list[str]:
    if not count:
        return []
    waits = f"{count.total()} jobs wait" if count.total() > 1 else "1 job waits"
    return [f"{waits} {what}: {', '.join(sorted(count))}; {_WAYS_OUT}"]
