"""Types of values that are stored in Redis as JSON."""

from __future__ import annotations

from typing import NotRequired, TypeAlias, TypedDict

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class ActNote(TypedDict):
    """An operator's act on a job, lane or node, as Redis stores it there. `why`: the reason; `by`: the author; `at`:
    the time in ms since the epoch; `ticket`: where people discuss the act; `act`: for an act on many jobs at once, the
    id that all these notes share.
    """

    why: str
    by: str
    at: int
    ticket: NotRequired[str]
    act: NotRequired[str]
