"""What a runner was given by one taking: a job's task, or the step of its order that is at work, or its rollback."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kombu.utils.json import loads

from coordinator import orders


@dataclass(slots=True)  # not frozen: one is made for each job, and that would take twice as long
class Work:
    """`laid`: what is to be run, as it was laid out; `spec`: all of the job. `value`: the result of the step before.

    `error`: why the last attempt failed, or why the job is rolled back.
    """

    id: str
    keys: tuple[str, ...]
    task: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    spec: dict[str, Any]
    laid: Mapping[str, Any]
    kind: str
    tell: bool
    token: str
    fence: int
    attempt: int
    losses: int
    forgiven: int
    time_limit: float | None
    undoing: bool
    step: int
    value: Any
    error: dict[str, Any] | None

    @property
    def queue(self) -> str:
        return self.kind.split("\n")[1]

    @property
    def tries(self) -> int:
        """Attempts before this one that raised."""
        return self.attempt - self.losses - self.forgiven - 1

    @property
    def following(self) -> Mapping[str, Any] | None:
        """The step after this one."""
        return None if self.undoing else orders.following(self.spec, self.step)


def work_of(given: Sequence[Any], token: str) -> Work:
    """From the reply of runner_take or job_finish: id, then the fields of lua/hand.lua."""
    job_id, keys, task, spec_text, attempt, losses, fence, limits, unite, kind, tell = map(_text, given[:11])
    phase, step, value, forgiven, error = map(_text, given[11] or (None,) * 5)
    spec, number, undoing = _json(spec_text), int(step or 0), phase == "rollback"
    laid = spec["rollback"] if undoing else orders.laid(spec, number)
    before = loads(value) if value else None
    args = laid.get("args", ()) if undoing else orders.arguments(spec, number, before)
    limit = laid["limit"] if undoing else int(limits.split()[2])
    return Work(
        id=job_id,
        keys=tuple(keys.split("\n")),
        task=task,
        args=tuple(args),
        kwargs={**laid.get("kwargs", {}), **(loads(unite) if unite else {})},
        spec=spec,
        laid=laid,
        kind=kind,
        tell=bool(tell),
        token=token,
        fence=int(fence),
        attempt=int(attempt),
        losses=int(losses or 0),
        forgiven=int(forgiven or 0),
        time_limit=limit / 1000 if limit else None,
        undoing=undoing,
        step=number,
        value=before,
        error=_cause(error),
    )


def _json(text: str) -> Any:
    """As kombu reads it, which builds a decoder for each text; few need one."""
    return loads(text) if '"__type__"' in text else json.loads(text)


def _text(part: Any) -> Any:
    return part.decode() if isinstance(part, bytes) else part


def _cause(text: str | None) -> dict[str, Any] | None:
    error = loads(text) if text else None
    return {"type": "Lost", "message": error} if isinstance(error, str) else error
