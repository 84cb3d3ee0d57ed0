"""Reads the ready jobs, which Redis keeps by task and class (rules/ready.lua)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.store.client import Store

_PAGE = 200


@dataclass(frozen=True, slots=True)
class ReadyKind:
    """All ready jobs of one task and class. `kind`: the class; `place`: behind the last of them."""

    task: str
    kind: str
    count: int
    place: bytes


def ready_kinds(store: Store) -> list[ReadyKind]:
    """Count the ready jobs of each task and class. A round trip reads 200 of these; none reads the jobs."""
    found, place = list[ReadyKind](), b""
    while True:
        page = store.look("ready_read", place, _PAGE)
        found += [ReadyKind(task.decode(), kind.decode(), count, behind) for task, kind, count, behind in page]
        if len(page) < _PAGE:
            return found
        place = found[-1].place


def ready_of(store: Store, kinds: Sequence[ReadyKind], most: int) -> list[list[str]]:
    """The first `most` ids of each of these kinds."""
    name = store.key("ready-by-task")
    asked = [("ZRANGEBYLEX", name, b"[" + one.place[:-1], b"(" + one.place, "LIMIT", "0", str(most)) for one in kinds]
    return [[id_in(member) for member in members] for members in (store.read_many(asked) if asked else ())]


def some_ready(store: Store, most: int) -> list[bytes]:
    """The first `most` members of the set of all ready jobs."""
    members: list[bytes] = store.read("ZRANGE", store.key("ready-by-task"), 0, most - 1)
    return members


def id_in(member: bytes) -> str:
    return member.rpartition(b"\n")[2].decode()
