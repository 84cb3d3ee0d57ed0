"""The values that Redis keeps for us as JSON."""

from __future__ import annotations

from typing import TypeAlias, TypedDict

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class Act(TypedDict):
    """Why and by whom a job, a lane or a node was acted on; `at`: ms since the epoch."""

    why: str
    by: str
    at: int
