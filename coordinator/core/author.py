"""Who performs an operator's act: an act is a call that changes something, such as `cancel` or `pause`. It runs for an
author, whose role is checked before the call to Redis, and whose name goes into the audit trail.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from socket import gethostname
from types import MappingProxyType
from typing import Literal, ParamSpec, TypedDict, TypeVar

from coordinator.core.texts import near
from coordinator.errors import Forbidden, InvalidJob

P = ParamSpec("P")
T = TypeVar("T")
Role = Literal["viewer", "operator", "system"]
LONGEST = 1000  # characters that the reason, author or ticket of an act may have


@dataclass(frozen=True, slots=True)
class Author:
    """A person or program that performs acts. `role`: a `viewer` may only read; an `operator` may also act; `system` is
    a part of the coordinator itself, whose acts are not written to the audit trail.
    """

    name: str
    role: Role = "operator"


class Acting(TypedDict, total=False):
    """The keyword arguments that each act takes. `why`: the reason; `ticket`: where people discuss the act; `by`: the
    author; None for the one of the `acting` block around the call.
    """

    why: str
    by: str | Author | None
    ticket: str


_current: ContextVar[Author | None] = ContextVar("coordinator_author", default=None)


def author() -> Author:
    """Return the author for whom this code runs: that of the `acting` block around it, else an operator with the name
    of this host.
    """
    return _current.get() or Author(gethostname())


def for_somebody() -> bool:
    """True inside an `acting` block, for example in a request to the dashboard: this process serves another person, and
    must not block for long.
    """
    return _current.get() is not None


@contextmanager
def acting(who: Author) -> Iterator[None]:
    """Run the block for the author `who`: acts in the block are recorded under this name, and refused for a viewer."""
    before = _current.set(who)
    try:
        yield
    finally:
        _current.reset(before)


def refuses_viewers(act: Callable[P, T]) -> Callable[P, T]:
    """Decorate an act, so that the call raises Forbidden if its author is a viewer, before anything is read or done.
    An argument that the act does not have raises InvalidJob, before one that is missing.
    """

    parameters = signature(act).parameters
    known = [*(name for name in parameters if name not in ("self", "acting")), *Acting.__annotations__]

    @wraps(act)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if "acting" in parameters:
            _check([name for name in kwargs if name not in known], known)
        for who in (author(), kwargs.get("by")):
            if isinstance(who, Author) and who.role == "viewer":
                raise Forbidden(who.name, act.__name__)
        return act(*args, **kwargs)

    return call


def author_of(by: str | Author | None) -> Author:
    """Return the author for the argument `by` of an act: an Author as it is, an operator for a name, the current author
    for None or "".
    """
    return by if isinstance(by, Author) else Author(by or author().name)


def _check(unknown: Collection[str], known: Collection[str]) -> None:
    """Raise InvalidJob for the first of the `unknown` arguments of an act, which has the `known` ones."""
    for name in unknown:
        hint = ": coordinator.plan says what an act would do" if name == "dry_run" else near(name, known)
        raise InvalidJob(f"{name}: no argument of this act, which takes {', '.join(known)}{hint}")


def act_of(
    why: str = "", by: str | Author | None = None, ticket: str = "", *, about: Mapping[str, str] = MappingProxyType({}),
    **unknown: object,
) -> str:  # fmt: skip
    """Return the reason, author and ticket of an act as JSON, which the steps in Redis take (rules/audit.lua).

    `about`: further fields, which the step cannot know itself. Raises InvalidJob for a value that is not text or is too
    long, and for an unknown argument: a call with `dry_run=True` must not act where the act has no dry run.
    """
    _check(unknown, [*Acting.__annotations__])
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
