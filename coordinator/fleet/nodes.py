"""The nodes: which of them live, what they serve, how busy they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, cast

from kombu.utils.json import dumps, loads

from coordinator.errors import SettingsError
from coordinator.store.client import Store
from coordinator.store.times import instant, milliseconds
from coordinator.store.values import Act
from coordinator.store.wire import Arg
from coordinator.version import VERSION

if TYPE_CHECKING:
    from coordinator.fleet.run_times import Times

About = dict[str, str | int | float]
"""A node's own account: its app, pool, host, slots, load and the like. Each value is a field of `node:<name>`."""

Choice = TypedDict(
    "Choice", {"at": int, "score": float, "class": str, "next": str, "next_score": str, "passed": int}, total=False
)
"""Why a node was rung at `at` (ms). `next`: the second fitting node; `passed`: how many less busy nodes do not fit."""


@dataclass(frozen=True, slots=True)
class Node:
    """A coordinating node at one moment.

    `alive`: False once it misses heartbeats, until another node's sweep forgets it.
    `load`, `memory`: the used part, from 0 to 1. `pace`: how long its jobs run beside the fleet's, 5 = five times as
    long. `score`: the node with the lowest is rung next, and no node with 1 or more; None while the node drains.
    `drained`: the act of the operator who drains it. `choices`: its last rings as the least busy node, the latest
    first. `queue`: to which its app's tasks go, but for those in `routes`: {task: queue}.
    """

    name: str
    alive: bool
    app: str
    queues: tuple[str, ...]
    labels: tuple[str, ...]
    tasks: tuple[str, ...]
    capacity: int
    running: int
    rung: int
    ordinary: int
    load: float
    memory: float
    pace: float
    score: float | None
    draining: bool
    drained: Act | None
    choices: tuple[Choice, ...]
    pool: str
    host: str
    version: str
    since: datetime | None
    queue: str
    routes: dict[str, str]


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a heartbeat: overdue doorbells, for how many seconds the node drains (None: it does not), whether a
    result is owed or a parked job is to be looked at, whether a runner holds something, and the ms since a sweep.
    """

    bells: list[str]
    drains: float | None
    errands: bool
    busy: bool
    swept: int


class Nodes:
    def __init__(self, store: Store) -> None:
        self.store = store

    def register(self, name: str, incarnation: str, about: About, serves: Iterable[str], tasks: Iterable[str]) -> bool:
        """False: another living worker has this name. Raises SettingsError for a node that is too old."""
        ttl = milliseconds(self.store.settings.node_ttl)
        lists = (dumps(about), dumps(sorted(serves)), dumps(sorted(tasks)))
        verdict = self.store.step("node_register", name, incarnation, ttl, *lists).decode()
        if verdict.isdigit():
            raise SettingsError(
                f"the records of {self.store.prefix} have format {verdict}, which this version of celery-coordinator "
                f"({VERSION}) cannot read: upgrade node {name}"
            )
        return bool(verdict == "registered")

    def beat(self, name: str, incarnation: str, changed: Mapping[str, Arg], times: Times | None = None) -> Beat | None:
        """None: a sweep declared the node dead meanwhile, and it must register again.

        `times`: how long its jobs run; None: as was told before.
        """
        fields = [part for pair in changed.items() for part in pair]
        ttl = milliseconds(self.store.settings.node_ttl)
        told = "" if times is None else dumps(times)
        verdict, bells, drains, due, busy, swept = self.store.step("node_beat", name, incarnation, ttl, told, *fields)
        if verdict != b"alive":
            return None
        return Beat(
            [bell.decode() for bell in bells], None if drains < 0 else drains / 1000, bool(due), bool(busy), swept
        )

    def drain(self, name: str, on: bool, why: str, by: str) -> bool:
        """Whether that changed anything."""
        return bool(self.store.step("node_drain", name, int(on), why, by))

    def leave(self, name: str, incarnation: str) -> bool:
        """False: it was not there, or is another by now."""
        return bool(self.store.step("node_leave", name, incarnation))

    def drained(self) -> dict[str, Act]:
        """The acts of operators who drain nodes, by name. Such a node need not live."""
        found = self.store.read("HGETALL", self.store.key("drained"))
        return {name.decode(): loads(act) for name, act in sorted(found.items())}

    def all(self) -> list[Node]:
        """All nodes that no sweep has declared dead, sorted by name."""
        return self.store.call(self._read)

    def names(self) -> list[str]:
        return [node.name for node in self.all()]

    def living(self) -> list[Node]:
        """The nodes that miss no heartbeats now."""
        return [node for node in self.all() if node.alive]

    def is_alive(self, name: str, incarnation: str | None = None) -> bool:
        """`incarnation`: this very life of it."""
        pipeline = self.store.client.pipeline(transaction=False)
        pipeline.zscore(self.store.key("alive"), name)
        pipeline.hget(self.store.key("node", name), "incarnation")
        till, found = self.store.call(pipeline.execute)
        its = incarnation is None or (found or b"").decode() == incarnation
        return its and till is not None and bool(till > self.store.clock().uptime)

    def _read(self) -> list[Node]:
        client, key = self.store.client, self.store.key
        members = cast(list[tuple[bytes, float]], client.zrange(key("alive"), 0, -1, withscores=True))
        names, now = [name.decode() for name, _ in members], self.store.clock().uptime
        pipeline = client.pipeline(transaction=False)
        for name in names:
            pipeline.hgetall(key("node", name))
            pipeline.smembers(key("serves", name))
            pipeline.smembers(key("tasks", name))
            pipeline.hlen(key("work", name))
            pipeline.zcard(key("rung", name))
            pipeline.zscore(key("room"), name)
            pipeline.hget(key("drained"), name)
            pipeline.lrange(key("chosen", name), 0, -1)
        found = pipeline.execute()
        alive = [till > now for _, till in members]
        nodes = [_node(name, alive[i], found[8 * i : 8 * i + 8]) for i, name in enumerate(names)]
        return sorted((node for node in nodes if node), key=lambda node: node.name)


def _node(name: str, alive: bool, found: Sequence[Any]) -> Node | None:
    about = {field.decode(): value.decode() for field, value in found[0].items()}
    if not about:
        return None
    serves = sorted(what.decode().partition(" ")[::2] for what in found[1])
    return Node(
        name=name,
        alive=alive,
        app=next((value for kind, value in serves if kind == "app"), ""),
        queues=tuple(value for kind, value in serves if kind == "queue"),
        labels=tuple(value for kind, value in serves if kind == "label"),
        tasks=tuple(sorted(task.decode() for task in found[2])),
        capacity=int(about["capacity"]),
        running=found[3],
        rung=found[4],
        ordinary=int(about.get("ordinary", 0)),
        load=float(about.get("load", 0)),
        memory=float(about.get("memory", 0)),
        pace=float(about.get("pace", 1)),
        score=found[5],
        draining=about.get("closed") == "1",
        drained=loads(found[6]) if found[6] else None,
        choices=tuple(loads(choice) for choice in found[7]),
        pool=about.get("pool", ""),
        host=about.get("host", ""),
        version=about.get("version", ""),
        since=instant(about.get("since")),
        queue=about.get("queue", ""),
        routes=loads(about.get("routes", "{}")),
    )
