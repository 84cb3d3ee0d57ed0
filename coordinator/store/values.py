"""Types of the values that we store in Redis as JSON."""

from __future__ import annotations

from typing import NotRequired, TypeAlias, TypedDict

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class ActNote(TypedDict):
    """An operator's act on a job, a lane or a node: why, by whom, and when (`at`: ms since the epoch).

    `act`: the id of an act on many.
    """

    why: str
    by: str
    at: int
    ticket: NotRequired[str]
    act: NotRequired[str]
