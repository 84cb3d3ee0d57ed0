"""Parses Redis' reply to a claim: the job that a runner now owns, and which step of its chain or rollback to run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kombu.utils.json import loads

from coordinator.core.jobs import chain, collecting
from coordinator.core.jobs.record import cause_of, tries
from coordinator.core.jobs.spec import ErrorRecord, Spec, StepSpec

Part = bytes | str | int | None

TASK = "coordinator.run"  # the name of the Celery task that runs a runner; each wake-up starts it


class ClaimReply(NamedTuple):
    """The reply of the Redis functions runner_take and job_finish to a claim, as functions/rules/claim.lua makes it.

    `kind`: the routing class. `more`: the record's fields phase, step, value, forgiven, error, back, undid, values,
    instead and given; None for a job that has none of them. `waits`: how long the job has waited for what, as text of
    reasons and milliseconds in turns.
    """

    id: Part
    keys: Part
    task: Part
    spec: Part
    attempt: Part
    losses: Part
    fence: Part
    limits: Part
    calls: Part
    kind: Part
    tell: Part
    more: Sequence[Part] | None
    waits: Part


@dataclass(slots=True)  # not frozen: a frozen instance takes twice as long to create, and each attempt creates one
class Claim:
    """A job that a runner has claimed, and the step to run. `spec`: of the whole job; `step_spec`: of the step.

    `step`: the number of the step in the job, from 0; `back`: of the step in the rollback. `value`: the result of the
    step before; `values`: in a rollback, the results of all steps that succeeded. `kind`: the routing class of the
    step. `tell`: as in the record: 0 if no result or link is owed. `losses`, `forgiven`: attempts that ended in a loss
    or a conflict. `undoing`: True for a rollback. `error`: why the last attempt failed, or why the job is rolled back.
    `limits`: the field of the record (functions/rules/record.lua).
    """

    id: str
    keys: tuple[str, ...]
    task: str
    args: tuple[object, ...]
    kwargs: dict[str, object]
    spec: Spec
    step_spec: StepSpec
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
    limits: str

    @property
    def queue(self) -> str:
        return self.kind.split("\n")[1]

    @property
    def max_lifetime(self) -> float:
        """Seconds from the first claim of the job."""
        return int(self.limits.split(" ", 4)[3]) / 1000

    @property
    def nth(self) -> int:
        """The number of this attempt at the current step, from 1, as tasks and logs see it."""
        return tries(self.attempt, self.step, self.spec)

    @property
    def tries(self) -> int:
        """How many attempts before this one raised an error; losses and conflicts do not count."""
        return self.attempt - self.losses - self.forgiven - 1

    @property
    def following(self) -> StepSpec | None:
        """The step that follows this one in the chain, or in the rollback; None after the last."""
        if self.undoing:
            return chain.following(self.spec["rollback"], self.back)
        return chain.following(self.spec, self.step)


def claim_of(parts: Iterable[object], token: str) -> Claim:
    """Build a Claim from `parts`, Redis' reply to a claim (see ClaimReply). `token`: with which the job was claimed."""
    reply = ClaimReply._make(parts)
    spec = _spec_of(_text(reply.spec))
    if reply.more is None:
        return _plain(reply, spec, token)
    phase, step, value, forgiven, error, back, undid, values, instead, given = reply.more
    number, undoing = int(step or 0), _text(phase) == "rollback"
    spec = chain.detoured(spec, number, loads(_text(instead) or "[]"))
    before = loads(_text(value)) if value else None
    place = chain.number_of(_text(back)) if undoing else number
    chosen = spec["rollback"] if undoing else spec
    step_spec = chain.step_spec(chosen, place)
    args = chain.arguments(chosen, place, (loads(_text(undid)) if undid else None) if undoing else before)
    call = args, step_spec.get("kwargs", {})
    if reply.calls and not (instead or undoing):
        call = collecting.given(_text(reply.calls))
    limit = step_spec["limit"] if undoing else int(_text(reply.limits).split()[2])
    return Claim(
        id=_text(reply.id), keys=_keys(reply.keys), task=_text(reply.task), args=tuple(call[0]),
        kwargs=call[1]
        | (_given(given) if given and number == spec.get("first", 0) and not (instead or undoing) else {}),
        spec=spec,
        step_spec=step_spec,
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
        limits=_text(reply.limits),
    )  # fmt: skip


def _given(part: Part) -> dict[str, object]:
    """The results of the job's causes, by the arguments to which the submit hands them on."""
    given: dict[str, object] = loads(f"{{{_text(part)}}}")
    return given


def _plain(reply: ClaimReply, spec: Spec, token: str) -> Claim:
    """Build the claim of a job whose reply has no `more`: the usual case, a job of one step without retries so far."""
    step_spec = chain.step_spec(spec, 0)
    args, kwargs = chain.arguments(spec, 0, None), {**step_spec.get("kwargs", {})}
    if reply.calls:
        args, kwargs = collecting.given(_text(reply.calls))
    limits = _text(reply.limits)
    limit = int(limits.split(" ", 3)[2])
    return Claim(
        _text(reply.id), _keys(reply.keys), _text(reply.task), tuple(args),
        kwargs, spec, step_spec, _text(reply.kind), int(reply.tell or 0), token, int(reply.fence or 0),
        int(reply.attempt or 0), int(reply.losses or 0), 0, limit / 1000 if limit else None, False, 0, 0, None, (),
        None, limits,
    )  # fmt: skip


def _spec_of(text: str) -> Spec:
    """Parse the JSON of a job's spec as `kombu.utils.json.loads` does, but faster: texts without kombu's `__type__`
    marks (dates, UUIDs) go to the plain decoder.
    """
    spec: Spec = loads(text) if '"__type__"' in text else json.loads(text)
    return spec


def _keys(part: Part) -> tuple[str, ...]:
    text = _text(part)
    return tuple(text.split("\n")) if text else ()


def _text(part: Part) -> str:
    return part.decode() if isinstance(part, bytes) else str(part or "")
