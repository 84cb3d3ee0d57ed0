"""Who acts. Each act of an operator runs for an author, whose role it checks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from socket import gethostname
from typing import Literal

Role = Literal["viewer", "operator"]


@dataclass(frozen=True, slots=True)
class Author:
    """A person or program. A `viewer` may read; an `operator` may act, too."""

    name: str
    role: Role = "operator"


_current: ContextVar[Author | None] = ContextVar("coordinator_author", default=None)


def author() -> Author:
    """The author for whom this code runs: the one of `acting`, else this host as an operator."""
    return _current.get() or Author(gethostname())


@contextmanager
def acting(who: Author) -> Iterator[None]:
    """Run the block for this author: its acts carry the name, and a viewer's are refused."""
    before = _current.set(who)
    try:
        yield
    finally:
        _current.reset(before)
