"""A claim gives a runner a job: its task, the step of its chain that is due, or its rollback."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kombu.utils.json import loads

from coordinator.jobs import chain
from coordinator.jobs.record import cause_of, tries
from coordinator.jobs.spec import Cause, Spec, StepSpec

Part = bytes | str | int | None


class Taken(NamedTuple):
    """The reply to a claim (runner_take, job_finish) as it comes: see functions/rules/claim.lua.

    `more`: of a job that was not simply started, its phase, step, value, forgiven, error, back, undid and values.
    """

    id: Part
    keys: Part
    task: Part
    spec: Part
    attempt: Part
    losses: Part
    fence: Part
    limits: Part
    unite: Part
    kind: Part
    tell: Part
    more: Sequence[Part] | None


@dataclass(slots=True)  # not frozen: one is made for each job, and that would take twice as long
class Claim:
    """`laid`: the step to run, as it was submitted; `spec`: all of the job. `value`: the result of the step before;
    `values`: of a rollback, those of all steps before.

    `step`: the job's step; `back`: of a rollback, its own. `error`: why the last attempt failed, or why the job is
    rolled back.
    """

    id: str
    keys: tuple[str, ...]
    task: str
    args: tuple[object, ...]
    kwargs: dict[str, object]
    spec: Spec
    laid: StepSpec
    kind: str
    tell: int
    token: str
    fence: int
    attempt: int
    losses: int
    forgiven: int
    time_limit: float | None
    undoing: bool
    step: int
    back: int
    value: object
    values: tuple[object, ...]
    error: Cause | None

    @property
    def queue(self) -> str:
        return self.kind.split("\n")[1]

    @property
    def nth(self) -> int:
        """The attempt that people count."""
        return tries(self.attempt, self.step, self.spec)

    @property
    def tries(self) -> int:
        """Attempts before this one that raised."""
        return self.attempt - self.losses - self.forgiven - 1

    @property
    def following(self) -> StepSpec | None:
        """The step after this one."""
        if self.undoing:
            return chain.following(self.spec["rollback"], self.back)
        return chain.following(self.spec, self.step)


def claim_of(given: Iterable[object], token: str) -> Claim:
    """Read the reply to a claim that was made with this token."""
    taken = Taken._make(given)
    spec = _spec_of(_text(taken.spec))
    if taken.more is None:
        return _plain(taken, spec, token)
    phase, step, value, forgiven, error, back, undid, values = taken.more
    number, undoing = int(step or 0), _text(phase) == "rollback"
    before = loads(_text(value)) if value else None
    place = chain.number_of(_text(back)) if undoing else number
    chosen = spec["rollback"] if undoing else spec
    laid = chain.laid(chosen, place)
    args = chain.arguments(chosen, place, (loads(_text(undid)) if undid else None) if undoing else before)
    limit = laid["limit"] if undoing else int(_text(taken.limits).split()[2])
    return Claim(
        id=_text(taken.id),
        keys=tuple(_text(taken.keys).split("\n")),
        task=_text(taken.task),
        args=tuple(args),
        kwargs={**laid.get("kwargs", {}), **(loads(_text(taken.unite)) if taken.unite else {})},
        spec=spec,
        laid=laid,
        kind=_text(taken.kind),
        tell=int(taken.tell or 0),
        token=token,
        fence=int(taken.fence or 0),
        attempt=int(taken.attempt or 0),
        losses=int(taken.losses or 0),
        forgiven=int(forgiven or 0),
        time_limit=limit / 1000 if limit else None,
        undoing=undoing,
        step=number,
        back=place if undoing else 0,
        value=before,
        values=tuple(loads(f"[{_text(values)}]")) if undoing and values else (),
        error=cause_of(_text(error)),
    )


def _plain(taken: Taken, spec: Spec, token: str) -> Claim:
    """The claim of a job that was simply started, as most are."""
    laid = chain.laid(spec, 0)
    kwargs: dict[str, object] = {**laid.get("kwargs", {})}
    if taken.unite:
        kwargs |= loads(_text(taken.unite))
    limit = int(_text(taken.limits).split(" ", 3)[2])
    return Claim(
        _text(taken.id), tuple(_text(taken.keys).split("\n")), _text(taken.task), tuple(chain.arguments(spec, 0, None)),
        kwargs, spec, laid, _text(taken.kind), int(taken.tell or 0), token, int(taken.fence or 0),
        int(taken.attempt or 0), int(taken.losses or 0), 0, limit / 1000 if limit else None, False, 0, 0, None, (),
        None,
    )  # fmt: skip


def _spec_of(text: str) -> Spec:
    """Read the JSON as kombu does. kombu builds a decoder for each text, and few texts need one."""
    spec: Spec = loads(text) if '"__type__"' in text else json.loads(text)
    return spec


def _text(part: Part) -> str:
    return part.decode() if isinstance(part, bytes) else str(part or "")
