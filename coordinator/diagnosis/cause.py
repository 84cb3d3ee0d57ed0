"""The answer to "why does it wait": one sentence, then all causes down to their roots, each with a stable code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from coordinator.store.values import Json


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason why a thing is where it is.

    `code`: stable, `waiting.lane`; `docs/why.md` has an anchor for each. `thing`: what it is said of, `job 7f3`.
    `text`: one sentence, made of `facts`. `frees`: the command that would free it, where there is one. `of`: the job,
    lane or node that this cause leads to next; None = a root.
    """

    code: str
    thing: str
    text: str
    facts: Mapping[str, Json] = field(default_factory=dict)
    frees: str | None = None
    of: str | None = None


@dataclass(frozen=True, slots=True)
class Why:
    """Why a thing is where it is, at the moment `as_of`.

    `sentence`: for a tired person. `causes`: all of them, from the thing itself to the roots. `so_far`: code -> seconds
    that it has cost until now. `complete`: False where more causes follow than one answer reads.
    """

    thing: str
    sentence: str
    causes: tuple[Cause, ...]
    as_of: datetime
    so_far: Mapping[str, float] = field(default_factory=dict)
    complete: bool = True
