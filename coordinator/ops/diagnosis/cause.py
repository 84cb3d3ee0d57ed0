"""The answer to "why does this wait?": some sentences, then all causes, each with a stable code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from coordinator.core.store.times import moment
from coordinator.core.store.values import Json
from coordinator.ops.diagnosis.words import spent_text


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason why a thing (a job, lane, node …) is where it is.

    `code`: a stable name such as `waiting.lane`; `docs/why.md` explains each. `thing`: the thing that the cause is
    about, such as `job 7f3`. `text`: a sentence, made of `facts` (times in seconds, instants as ISO text). `detail`:
    what few readers need: fence, lease, process. `frees`: the command that removes the cause, None = there is none;
    `act` and `values`: the verb of that command and the verb's arguments, for programs. `of`: the things whose causes
    explain this cause; empty: nothing else does.
    """

    code: str
    thing: str
    text: str
    facts: Mapping[str, Json] = field(default_factory=dict)
    frees: str | None = None
    of: tuple[str, ...] = ()
    act: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.detail})" if self.detail else self.text


@dataclass(frozen=True, slots=True)
class Why:
    """The answer why a thing is where it is, as read at `as_of`. `str()` gives the whole answer as text for people.

    `sentence`: the answer in short: what is wrong, and then where the thing stands. `causes`: all causes, first those
    of the thing itself. `so_far`: code of a cause -> seconds that the job has spent for this cause; together they are
    the job's age. `complete`: False where more causes follow than one answer reads.
    """

    thing: str
    sentence: str
    causes: tuple[Cause, ...]
    as_of: datetime
    so_far: Mapping[str, float] = field(default_factory=dict)
    complete: bool = True

    @property
    def codes(self) -> list[str]:
        """The codes of the causes, each once, in the order of the causes."""
        return list(dict.fromkeys(cause.code for cause in self.causes))

    def __str__(self) -> str:
        frees = dict.fromkeys(cause.frees for cause in self.causes if cause.frees)
        spent = spent_text(self.so_far)
        return "\n".join(
            [
                self.sentence,
                *(f"  {cause}  [{cause.code}]" for cause in self.causes),
                *([f"  {spent}"] if spent else []),
                *(f"  frees it: {command}" for command in frees),
                f"  as of {moment(self.as_of)}, {'complete' if self.complete else 'more causes follow'}",
            ]
        )
