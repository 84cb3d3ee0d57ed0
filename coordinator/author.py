"""Who acts. Each act of an operator runs for an author, whose role it checks before it asks Redis."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from socket import gethostname
from types import MappingProxyType
from typing import Literal, ParamSpec, TypedDict, TypeVar

from coordinator.errors import Forbidden, InvalidJob

P = ParamSpec("P")
T = TypeVar("T")
Role = Literal["viewer", "operator", "system"]
LONGEST = 1000  # characters of each text of an act


@dataclass(frozen=True, slots=True)
class Author:
    """A person or program. A `viewer` may read; an `operator` may act, too.

    `system`: a part of the coordinator, whose acts stand in no audit trail.
    """

    name: str
    role: Role = "operator"


class Acting(TypedDict, total=False):
    """What each act takes. `why`: the reason; `ticket`: where people discuss it; `by`: the author, by default of
    `acting`.
    """

    why: str
    by: str | Author | None
    ticket: str


_current: ContextVar[Author | None] = ContextVar("coordinator_author", default=None)


def author() -> Author:
    """The author for whom this code runs: the one of `acting`, else this host as an operator."""
    return _current.get() or Author(gethostname())


def for_somebody() -> bool:
    """True within `acting`, as on the dashboard: somebody else asks this process, which waits for nothing long."""
    return _current.get() is not None


@contextmanager
def acting(who: Author) -> Iterator[None]:
    """Run the block for this author: its acts carry the name, and a viewer's are refused."""
    before = _current.set(who)
    try:
        yield
    finally:
        _current.reset(before)


def refuses_viewers(act: Callable[P, T]) -> Callable[P, T]:
    """A decorator of each act: it raises Forbidden for a viewer before anything is asked or done.

    A dry run is no act.
    """

    @wraps(act)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        for who in () if kwargs.get("dry_run") else (author(), kwargs.get("by")):
            if isinstance(who, Author) and who.role == "viewer":
                raise Forbidden(who.name, act.__name__)
        return act(*args, **kwargs)

    return call


def author_of(by: str | Author | None) -> Author:
    """The author that an act names, else the one for whom this code runs."""
    return by if isinstance(by, Author) else Author(by or author().name)


def act_of(
    why: str = "", by: str | Author | None = None, ticket: str = "", *, about: Mapping[str, str] = MappingProxyType({}),
    **unknown: object,
) -> str:  # fmt: skip
    """Write an act as steps take it (functions/rules/audit.lua). `about`: what the step itself does not know of it.

    Raises InvalidJob for what is no text, or too long, or unknown: an act that has no dry run must not be done for one.
    """
    if unknown:
        raise InvalidJob(f"this act takes why, by and ticket, not {', '.join(unknown)}")
    who = author_of(by)
    for part, text in (("why", why), ("by", who.name), ("ticket", ticket)):
        if not isinstance(text, str) or len(text) > LONGEST:
            raise InvalidJob(f"{part} is text of at most {LONGEST} characters, not {text!r:.100}")
    act: dict[str, str | bool] = {"why": why, "by": who.name, **about}
    if ticket:
        act["ticket"] = ticket
    if who.role == "system":
        act["own"] = True
    return json.dumps(act, ensure_ascii=False)
