"""A job as it is kept: its record, the hash `{prefix}:job:<id>`, and its states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kombu.utils.json import loads

from coordinator.store import Store, seconds

TERMINAL = frozenset({"succeeded", "failed", "rolled_back", "double_fault", "cancelled", "expired"})


@dataclass(frozen=True, slots=True)
class Submission:
    """What became of a submit. `accepted`: work under `job_id` is kept (all outcomes but `skipped`).

    `outcome`: started (in front: no other job holds it up), queued, skipped, coalesced (`job_id` is an alias of the
    waiting job it melted into), duplicate, collected (by a sorter). `position`: 0 = in front, -1 = not in line (yet).
    """

    job_id: str
    outcome: str
    position: int

    @property
    def accepted(self) -> bool:
        return self.outcome != "skipped"


@dataclass(frozen=True, slots=True)
class Job:
    """A job's record at one moment. Times are aware UTC datetimes, None = not yet.

    `step`: of a chain, the one at work; args and kwargs are its own. `rollback`: done or failed, once it was run;
    `fault`: why it failed. `acts`: what an operator did to it or its lane (retried, moved, paused, resumed): {why, by,
    at (ms)}; of a job that was cancelled or released, `error` says that.
    """

    id: str
    keys: tuple[str, ...]
    state: str
    task: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    attempt: int
    losses: int
    node: str | None
    fence: int | None
    submitted: datetime | None
    taken: datetime | None
    started: datetime | None
    ended: datetime | None
    result: Any
    error: dict[str, Any] | None
    progress: tuple[int, int] | None
    step: int = 0
    priority: int = 0
    weight: str = "1"
    rollback: str | None = None
    fault: dict[str, Any] | None = None
    acts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.keys[0]

    @property
    def over(self) -> bool:
        return self.state in TERMINAL

    @property
    def waited_for(self) -> bool:
        """What `wait` waits for: the end, or that an operator must decide."""
        return self.over or self.state == "held"


def counts(store: Store) -> dict[str, int]:
    """How many jobs are in each state, ended in each outcome, were `created`; and `retries`, `losses`, `faults`."""
    found = store.run("counts_read")
    return {name.decode(): number for name, number in zip(found[::2], found[1::2], strict=True)}


def parse(job_id: str, record: Mapping[bytes, bytes]) -> Job:
    """A Job from its hash, as Redis gives it."""
    text = {name.decode(): value.decode() for name, value in record.items()}
    spec = loads(text.get("spec", "{}"))
    number = int(text.get("step", 0))
    laid = spec["steps"][number] if "steps" in spec else spec
    kwargs = dict(laid.get("kwargs", {})) | (loads(text["unite"]) if "unite" in text else {})
    rolling = text.get("phase") == "rollback" and text["state"] in ("ready", "running")
    done, _, total = text.get("progress", "").partition("/")
    return Job(
        id=job_id,
        keys=tuple(text["keys"].split("\n")),
        state="rolling_back" if rolling else text["state"],
        task=text.get("task", ""),
        args=tuple(laid.get("args", ())),
        kwargs=kwargs,
        attempt=int(text.get("attempt", 0)),
        losses=int(text.get("losses", 0)),
        node=text.get("node"),
        fence=int(text["fence"]) if "fence" in text else None,
        submitted=_instant(text.get("submitted")),
        taken=_instant(text.get("taken")),
        started=_instant(text.get("started")),
        ended=_instant(text.get("ended")),
        result=loads(text["result"]) if text.get("result") else None,
        error=_cause(text.get("error")),
        progress=(int(done), int(total)) if total else None,
        step=number,
        priority=int(text.get("priority", 0)),
        weight=text.get("weight", "1"),
        rollback=text.get("rollback"),
        fault=_cause(text.get("fault")),
        acts={name: loads(text[name]) for name in ("retried", "paused", "resumed", "moved") if name in text},
    )


def _cause(text: str | None) -> dict[str, Any] | None:
    error = loads(text) if text else None
    return {"type": "Lost", "message": error} if isinstance(error, str) else error


def _instant(text: str | None) -> datetime | None:
    value = seconds(text)
    return None if value is None else datetime.fromtimestamp(value, UTC)
