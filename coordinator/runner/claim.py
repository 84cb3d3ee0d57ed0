"""A claim: the job that Redis gave to a runner, with the step of its chain or rollback to run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kombu.utils.json import loads

from coordinator.jobs import chain
from coordinator.jobs.record import cause_of, tries
from coordinator.jobs.spec import ErrorRecord, Spec, StepSpec

Part = bytes | str | int | None

TASK = "coordinator.run"  # a message of it starts a runner, which claims


class ClaimReply(NamedTuple):
    """The raw reply of runner_take and job_finish: see functions/rules/claim.lua.

    `more`: phase, step, value, forgiven, error, back, undid, values and instead; None for a job without these. `waits`:
    those that have ended, a reason and its ms in turns.
    """

    id: Part
    keys: Part
    task: Part
    spec: Part
    attempt: Part
    losses: Part
    fence: Part
    limits: Part
    merge_args: Part
    kind: Part
    tell: Part
    more: Sequence[Part] | None
    waits: Part


@dataclass(slots=True)  # not frozen, which would take twice as long: each job creates one
class Claim:
    """A job to run. `spec`: the whole job; `laid`: the step to run, as it was submitted. `value`: the result of the
    step before; `values`: in a rollback, the results of all steps before.

    `step`: the number of the job's step; `back`: the number of the rollback's step. `error`: why the last attempt
    failed, or why the job is rolled back.
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
    error: ErrorRecord | None

    @property
    def queue(self) -> str:
        return self.kind.split("\n")[1]

    @property
    def nth(self) -> int:
        """The number of this attempt as people count it."""
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


def claim_of(parts: Iterable[object], token: str) -> Claim:
    """Parse Redis' reply to a claim with this token."""
    reply = ClaimReply._make(parts)
    spec = _spec_of(_text(reply.spec))
    if reply.more is None:
        return _plain(reply, spec, token)
    phase, step, value, forgiven, error, back, undid, values, instead = reply.more
    number, undoing = int(step or 0), _text(phase) == "rollback"
    spec = chain.detoured(spec, number, loads(_text(instead) or "[]"))
    before = loads(_text(value)) if value else None
    place = chain.number_of(_text(back)) if undoing else number
    chosen = spec["rollback"] if undoing else spec
    laid = chain.laid(chosen, place)
    args = chain.arguments(chosen, place, (loads(_text(undid)) if undid else None) if undoing else before)
    limit = laid["limit"] if undoing else int(_text(reply.limits).split()[2])
    return Claim(
        id=_text(reply.id),
        keys=tuple(_text(reply.keys).split("\n")),
        task=_text(reply.task),
        args=tuple(args),
        kwargs=laid.get("kwargs", {}) | (loads(_text(reply.merge_args)) if reply.merge_args and not instead else {}),
        spec=spec,
        laid=laid,
        kind=_text(reply.kind),
        tell=int(reply.tell or 0),
        token=token,
        fence=int(reply.fence or 0),
        attempt=int(reply.attempt or 0),
        losses=int(reply.losses or 0),
        forgiven=int(forgiven or 0),
        time_limit=limit / 1000 if limit else None,
        undoing=undoing,
        step=number,
        back=place if undoing else 0,
        value=before,
        values=tuple(loads(f"[{_text(values)}]")) if undoing and values else (),
        error=cause_of(_text(error)),
    )


def _plain(reply: ClaimReply, spec: Spec, token: str) -> Claim:
    """The claim of a job whose reply has no `more`, the usual case."""
    laid = chain.laid(spec, 0)
    kwargs: dict[str, object] = {**laid.get("kwargs", {})}
    if reply.merge_args:
        kwargs |= loads(_text(reply.merge_args))
    limit = int(_text(reply.limits).split(" ", 3)[2])
    return Claim(
        _text(reply.id), tuple(_text(reply.keys).split("\n")), _text(reply.task), tuple(chain.arguments(spec, 0, None)),
        kwargs, spec, laid, _text(reply.kind), int(reply.tell or 0), token, int(reply.fence or 0),
        int(reply.attempt or 0), int(reply.losses or 0), 0, limit / 1000 if limit else None, False, 0, 0, None, (),
        None,
    )  # fmt: skip


def _spec_of(text: str) -> Spec:
    """Parse JSON as kombu does. kombu builds a decoder for each text, which few texts need."""
    spec: Spec = loads(text) if '"__type__"' in text else json.loads(text)
    return spec


def _text(part: Part) -> str:
    return part.decode() if isinstance(part, bytes) else str(part or "")
