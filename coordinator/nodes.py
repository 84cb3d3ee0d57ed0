"""Who is alive, what it serves, its room and load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kombu.utils.json import dumps, loads

from coordinator.store import Arg, Store, milliseconds, seconds


@dataclass(frozen=True, slots=True)
class Node:
    """A coordinating node at one moment.

    `alive`: not so from its missed heartbeats until a sweep forgets it, which takes a node that lives.
    `load`, `memory`: what is used, of 1. `score`: the lowest is rung next, from 1 on nobody; None: it drains.
    `drained`: {why, by, at (ms)} of the operator who drains it. `choices`: the last times it was rung as the least
    busy, the latest first: {at (ms), score, class, next, next_score (who was second of those
    that fit), passed (how many less busy ones
    did not fit)}.
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
    score: float | None
    draining: bool
    drained: dict[str, Any] | None
    choices: tuple[dict[str, Any], ...]
    pool: str
    host: str
    version: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Beat:
    """What a node is told: which of its bells are overdue, and for how long (s) it has been draining, if it is."""

    bells: list[str]
    drains: float | None


class Nodes:
    def __init__(self, store: Store) -> None:
        self.store = store

    def register(
        self, name: str, incarnation: str, about: Mapping[str, Any], serves: Iterable[str], tasks: Iterable[str]
    ) -> tuple[bool, list[Any]]:
        """False: another living worker has this name. Also the bells of whoever it woke."""
        ttl = milliseconds(self.store.settings.node_ttl)
        lists = (dumps(about), dumps(sorted(serves)), dumps(sorted(tasks)))
        verdict, rung = self.store.run("node_register", name, incarnation, ttl, *lists)
        return verdict == b"registered", rung

    def beat(self, name: str, incarnation: str, changed: Mapping[str, Arg]) -> Beat | None:
        """None: it was declared dead meanwhile and must register again."""
        fields = [part for pair in changed.items() for part in pair]
        ttl = milliseconds(self.store.settings.node_ttl)
        verdict, bells, drains = self.store.run("node_beat", name, incarnation, ttl, *fields)
        if verdict != b"alive":
            return None
        return Beat([bell.decode() for bell in bells], None if drains < 0 else drains / 1000)

    def drain(self, name: str, on: bool, why: str, by: str) -> tuple[bool, list[Any]]:
        """Whether that changed anything, and the bells of whoever it woke."""
        changed, rung = self.store.run("node_drain", name, int(on), why, by)
        return bool(changed), rung

    def leave(self, name: str, incarnation: str) -> list[Any]:
        return self.store.run("node_leave", name, incarnation)[0]  # type: ignore[no-any-return]

    def drained(self) -> dict[str, dict[str, Any]]:
        """{why, by, at (ms)} of each name that an operator drains, whether a node of it lives or not."""
        found = self.store.call(lambda: self.store.client.hgetall(self.store.key("drained")))
        return {name.decode(): loads(act) for name, act in sorted(found.items())}

    def all(self) -> list[Node]:
        """Those that no sweep has declared dead, by name."""
        return self.store.call(self._read)  # type: ignore[no-any-return]

    def living(self) -> list[Node]:
        """Those of them that miss no heartbeats now."""
        return [node for node in self.all() if node.alive]

    def is_alive(self, name: str) -> bool:
        def ask() -> list[Any]:
            pipeline = self.store.client.pipeline(transaction=False)
            pipeline.zscore(self.store.key("alive"), name)
            pipeline.time()
            return list(pipeline.execute())

        till, now = self.store.call(ask)
        return till is not None and bool(till > _instant(now))

    def _read(self) -> list[Node]:
        client, key = self.store.client, self.store.key
        pipeline = client.pipeline(transaction=False)
        pipeline.zrange(key("alive"), 0, -1, withscores=True)
        pipeline.time()
        members, at = pipeline.execute()
        names, now = [name.decode() for name, _ in members], _instant(at)
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


def _instant(time: tuple[int, int]) -> float:
    """Milliseconds of the server's answer to TIME."""
    return time[0] * 1000 + time[1] / 1000


def _node(name: str, alive: bool, found: Sequence[Any]) -> Node | None:
    about = {field.decode(): value.decode() for field, value in found[0].items()}
    if not about:
        return None
    serves = sorted(what.decode().partition(" ")[::2] for what in found[1])
    since = seconds(about.get("since"))
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
        score=found[5],
        draining=about.get("closed") == "1",
        drained=loads(found[6]) if found[6] else None,
        choices=tuple(loads(choice) for choice in found[7]),
        pool=about.get("pool", ""),
        host=about.get("host", ""),
        version=about.get("version", ""),
        since=None if since is None else datetime.fromtimestamp(since, UTC),
    )
