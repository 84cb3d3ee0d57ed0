"""Registers nodes, keeps them alive, and reads what they serve and how busy they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kombu.utils.json import dumps

from coordinator.store.client import Store
from coordinator.store.reading import act_in, reader_of
from coordinator.store.times import ClockReading, milliseconds
from coordinator.store.values import ActNote
from coordinator.store.wire import Arg

if TYPE_CHECKING:
    from coordinator.fleet.measures import Batch
    from coordinator.fleet.run_times import Times

About = dict[str, str | int | float]
"""The fields of a node's record `node:<name>`: its app, pool, host, slots, load and so on."""


@dataclass(frozen=True, slots=True)
class Node:
    """A coordinating node at one moment.

    `alive`: False once it misses heartbeats, until another node's sweep removes it.
    `load`, `memory`: the used share, from 0 to 1. `pace`: the run time of its jobs over the fleet's; 5 = five times as
    long. `score`: the node with the lowest score is woken next, and none with 1 or more; None while the node drains.
    `drained`: the act of the operator who drains it. `queue`: the queue of its app's tasks, except those in `routes`,
    {task: queue}. `skew`: seconds by which its host's clock is ahead of the installation's. `failure`: why the last
    runner there failed, '' if none did in the last minute.
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
    drained: ActNote | None
    pool: str
    host: str
    version: str
    since: datetime | None
    queue: str
    routes: dict[str, str]
    skew: float = 0.0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Beat:
    """The reply to a heartbeat.

    `wakes`: overdue wake-ups. `drains`: seconds for which the node has drained, None: it does not. `errands`: a result
    is owed, or a parked job is due for a look. `busy`: a runner has a claim. `swept`: ms since the last sweep. `now`:
    the installation's clock, in ms.
    """

    wakes: list[bytes]
    drains: float | None
    errands: bool
    busy: bool
    swept: int
    now: int


class Nodes:
    """Writes and reads the records of nodes."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def register(self, name: str, incarnation: str, about: About, serves: Iterable[str], tasks: Iterable[str]) -> bool:
        """Register a node. False: another living worker has its name."""
        ttl = milliseconds(self.store.settings.node_ttl)
        lists = (dumps(about), dumps(sorted(serves)), dumps(sorted(tasks)))
        return bool(self.store.step("node_register", name, incarnation, ttl, *lists) == b"registered")

    def beat(
        self, name: str, incarnation: str, changed: Mapping[str, Arg], times: Times | None = None,
        batch: Batch | None = None,
    ) -> Beat | None:  # fmt: skip
        """Send a heartbeat. None: a sweep declared the node dead meanwhile, and it must register again.

        `changed`: fields of its record. `times`: how long its jobs run; None: unchanged. `batch`: what is
        added to the installation's measures, once however often it is sent.
        """
        fields = [part for pair in changed.items() for part in pair]
        ttl = milliseconds(self.store.settings.node_ttl)
        sent = "" if times is None else dumps(times)
        measures = "" if batch is None else dumps(batch)
        verdict, wakes, drains, *rest = self.store.step("node_beat", name, incarnation, ttl, sent, measures, *fields)
        if verdict != b"alive":
            return None
        due, busy, swept, now = rest
        return Beat(wakes, None if drains < 0 else drains / 1000, bool(due), bool(busy), swept, now)

    def drain(self, name: str, on: bool, act: str) -> bool:
        """Drain a node, or let it go on. True if that changed anything."""
        return bool(self.store.step("node_drain", name, int(on), act))

    def leave(self, name: str, incarnation: str, held: Sequence[str] | None = None) -> bool:
        """Remove a node that ends. False: it was not registered, or a newer worker has its name.

        `held`: the ids of the jobs that it held, of a worker that was killed; None: it ended in order.
        """
        killed = () if held is None else (dumps(held),)
        return bool(self.store.step("node_leave", name, incarnation, *killed))

    def drained(self) -> dict[str, ActNote]:
        """The acts of operators who drain nodes, by node. Such a node may be dead."""
        acts = self.store.read("HGETALL", self.store.key("drained"))
        return {name.decode(): act for name, text in sorted(acts.items()) if (act := act_in(text))}

    def all(self) -> list[Node]:
        """All nodes that no sweep has removed, sorted by name."""
        names = sorted(name.decode() for name in self.store.read("ZRANGE", self.store.key("alive"), 0, -1))
        asked = [command for name in names for command in self._commands(name)]
        *replies, clock = self.store.read_many([*asked, self.store.looking("clock_read")])
        now = ClockReading(*clock).uptime
        nodes = [_node(name, now, replies[8 * i : 8 * i + 8]) for i, name in enumerate(names)]
        return [node for node in nodes if node]

    def living(self) -> list[Node]:
        """The nodes that have missed no heartbeat."""
        return [node for node in self.all() if node.alive]

    def _commands(self, name: str) -> list[tuple[str, ...]]:
        key = self.store.key
        return [
            ("ZSCORE", key("alive"), name),
            ("HGETALL", key("node", name)),
            ("SMEMBERS", key("serves", name)),
            ("SMEMBERS", key("tasks", name)),
            ("HLEN", key("work", name)),
            ("ZCARD", key("rung", name)),
            ("ZSCORE", key("room"), name),
            ("HGET", key("drained"), name),
        ]


def _node(name: str, now: float, replies: Sequence[Any]) -> Node | None:
    """Build a node from the replies to `_commands`; None: it is gone."""
    till, fields, serving, tasks, running, rung, score, drained = replies
    if not fields:
        return None
    reader = reader_of(fields)
    about = reader.record
    serves = sorted(entry.decode().partition(" ")[::2] for entry in serving)
    return Node(
        name=name,
        alive=till is not None and till > now,
        app=next((value for kind, value in serves if kind == "app"), ""),
        queues=tuple(value for kind, value in serves if kind == "queue"),
        labels=tuple(value for kind, value in serves if kind == "label"),
        tasks=tuple(sorted(task.decode() for task in tasks)),
        capacity=reader.get("capacity", int, 0),
        running=running,
        rung=rung,
        ordinary=reader.get("ordinary", int, 0),
        load=reader.get("load", float, 0.0),
        memory=reader.get("memory", float, 0.0),
        pace=reader.get("pace", float, 1.0),
        score=score,
        draining=about.get("closed") == "1",
        drained=act_in(drained),
        pool=about.get("pool", ""),
        host=about.get("host", ""),
        version=about.get("version", ""),
        since=reader.instant("since"),
        queue=about.get("queue", ""),
        routes=reader.json("routes", dict) or {},
        skew=reader.get("skew", float, 0.0),
        failure=about.get("failure", ""),
    )
