"""All keys of a server, and whether two looks saw the same."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from proof.model.raw import READ

_LOOK = READ.replace("PTTL", "PEXPIRETIME")


class Key(NamedTuple):
    """`ends`: ms since the epoch, negative for a key that stays; `held`: a digest of what it holds."""

    ends: int
    held: str


State = dict[str, Key]


def look(client: Any) -> State:
    """`client`: decodes nothing."""
    rows = client.eval(_LOOK, 1, "")
    return {name.decode(errors="replace"): Key(ends, _digest(kind, held)) for name, kind, ends, held in rows}


def same(one: State, other: State, now: int) -> bool:
    """But for what has ended by `now` (ms): Redis deletes that when it comes to it."""
    return one == other or not differing(one, other, now)


def differing(one: State, other: State, now: int) -> list[str]:
    """The names of keys that are not alike."""
    names = {name for name, _ in one.items() ^ other.items()}
    return sorted(name for name in names if _there(one, name, now) or _there(other, name, now))


def _there(state: State, name: str, now: int) -> bool:
    return name in state and (state[name].ends < 0 or state[name].ends > now)


def _digest(kind: bytes, held: list[bytes]) -> str:
    """Redis keeps the fields of a hash and the members of a set in no order."""
    parts = sorted(zip(held[::2], held[1::2], strict=True)) if kind == b"hash" else held
    return hashlib.sha256(repr(sorted(held) if kind == b"set" else parts).encode()).hexdigest()[:16]
