"""Counts and lists the ready jobs. Redis keeps all of them in one sorted set, by task and routing class
(rules/ready.lua).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.core.store.client import Store
from coordinator.core.store.steps import ready_read

_PAGE = 200


@dataclass(frozen=True, slots=True)
class ReadyKind:
    """The number of ready jobs of one task and routing class (`kind`). `place`: the end of these jobs in the sorted
    set, where the jobs of the next kind begin.
    """

    task: str
    kind: str
    count: int
    place: bytes


def ready_kinds(store: Store) -> list[ReadyKind]:
    """Count the ready jobs of each task and routing class, without reading the jobs; a round trip counts 200 kinds."""
    counted, place = list[ReadyKind](), b""
    while True:
        page = ready_read.look(store, place, _PAGE)
        counted += [ReadyKind(task.decode(), kind.decode(), count, behind) for task, kind, count, behind in page]
        if len(page) < _PAGE:
            return counted
        place = counted[-1].place


def ready_of(store: Store, kinds: Sequence[ReadyKind], most: int) -> list[list[str]]:
    """For each of these kinds, the ids of its first `most` ready jobs; all in one round trip."""
    name = store.key("ready-by-task")
    commands = [
        ("ZRANGEBYLEX", name, b"[" + kind.place[:-1], b"(" + kind.place, "LIMIT", "0", str(most)) for kind in kinds
    ]
    return [[id_in(member) for member in members] for members in (store.read_many(commands) if commands else ())]


def some_ready(store: Store, most: int) -> list[bytes]:
    """The first `most` members of the sorted set of all ready jobs; `id_in` reads the id of the job in each."""
    members: list[bytes] = store.read("ZRANGE", store.key("ready-by-task"), 0, most - 1)
    return members


def id_in(member: bytes) -> str:
    """The id of the job in a member of the sorted set of ready jobs."""
    return member.rpartition(b"\n")[2].decode()
