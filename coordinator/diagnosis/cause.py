"""The answer to "why does it wait": one sentence, then all causes down to their roots, each with a stable code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from coordinator.store.times import moment, span_text
from coordinator.store.values import Json


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason why a thing is where it is.

    `code`: stable, `waiting.lane`; `docs/why.md` has an anchor for each. `thing`: what it is said of, `job 7f3`.
    `text`: one sentence, made of `facts` (times in seconds, instants as ISO text). `frees`: the command that would free
    it, where there is one; `act`: the name of what it does, with the `values` that it takes, for programs. `of`: the
    things to which this cause leads next; none = a root.
    """

    code: str
    thing: str
    text: str
    facts: Mapping[str, Json] = field(default_factory=dict)
    frees: str | None = None
    of: tuple[str, ...] = ()
    act: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Why:
    """Why a thing is where it is, at the moment `as_of`. Its text has all that people need.

    `sentence`: for a tired person. `causes`: all of them, from the thing itself to the roots. `so_far`: code -> seconds
    that it has cost until now; they add up to the thing's age. `complete`: False where more causes follow than one
    answer reads.
    """

    thing: str
    sentence: str
    causes: tuple[Cause, ...]
    as_of: datetime
    so_far: Mapping[str, float] = field(default_factory=dict)
    complete: bool = True

    @property
    def codes(self) -> list[str]:
        """The codes of the causes, each once, in their order."""
        return list(dict.fromkeys(cause.code for cause in self.causes))

    def __str__(self) -> str:
        frees = dict.fromkeys(cause.frees for cause in self.causes if cause.frees)
        spent = ", ".join(f"{code} {span_text(seconds)}" for code, seconds in self.so_far.items())
        return "\n".join(
            [
                self.sentence,
                *(f"  {cause.text}  [{cause.code}]" for cause in self.causes),
                *([f"  so far: {spent}"] if spent else []),
                *(f"  frees it: {command}" for command in frees),
                f"  as of {moment(self.as_of)}, {'complete' if self.complete else 'more causes follow'}",
            ]
        )
