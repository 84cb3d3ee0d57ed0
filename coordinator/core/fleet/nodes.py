"""Registers nodes in Redis, sends their heartbeats, and reads the records of all nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kombu.utils.json import dumps

from coordinator.core.store.client import Store
from coordinator.core.store.reading import act_in, reader_of
from coordinator.core.store.steps import clock_read, node_beat, node_drain, node_leave, node_register
from coordinator.core.store.times import ClockReading, milliseconds
from coordinator.core.store.values import ActNote
from coordinator.core.store.wire import Arg

if TYPE_CHECKING:
    from coordinator.core.fleet.measures import Batch
    from coordinator.core.fleet.run_times import Times

About = dict[str, str | int | float]
"""The fields of a node's record `node:<name>`: its app, pool, host, slots, load and so on."""


@dataclass(frozen=True, slots=True)
class Node:
    """A snapshot of a node: one Celery worker and the supervisor beside it.

    `alive`: False once the node misses heartbeats, until a sweep removes it. `capacity`: its slots; `running`: its
    jobs; `ordinary`: its tasks that are no jobs; `rung`: its wake-ups that have not started a runner yet. `load`,
    `memory`: the share of CPU and memory in use, from 0 to 1. `slowdown`: the run time of its jobs divided by the
    fleet's: 5 means five times as long (`pace` in Redis). `score`: the node with the lowest score is woken next, and
    none with 1 or more; None while it drains. `drained`: who drains it, and why; None: no operator. `queue`: the queue
    of the tasks of its app that are not in `routes`, {task: queue}. `since`: when it registered. `skew`: seconds by
    which the clock of its host is ahead of `Store.now`. `failure`: the last error of a runner, "" if none in the last
    minute.
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
    slowdown: float
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
    """The reply to a node's heartbeat.

    `wakes`: wake-ups that have started no runner for two seconds. `drains`: for how many seconds the node has drained;
    None: it does not drain. `maintenance`: True if the node's maintenance has work. `busy`: True if a runner of the
    node holds a job. `swept`: ms since the last sweep of any node. `now`: as `Store.now`, in ms.
    """

    wakes: list[bytes]
    drains: float | None
    maintenance: bool  # in Redis, the nodes whose maintenance has work are in errands:<app>, an older name for it
    busy: bool
    swept: int
    now: int


class Nodes:
    """Writes and reads the records of nodes in Redis."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def register(self, name: str, incarnation: str, about: About, serves: Iterable[str], tasks: Iterable[str]) -> bool:
        """Register a node in Redis; False if another living worker has registered under the same name.

        `incarnation`: a random id of the worker's process; `about`: the fields of the record; `serves`: app, queues and
        labels, as "<kind> <name>"; `tasks`: the names of the app's tasks.
        """
        ttl = milliseconds(self.store.settings.node_ttl)
        lists = (dumps(about), dumps(sorted(serves)), dumps(sorted(tasks)))
        return node_register(self.store, name, incarnation, ttl, *lists) == "registered"

    def beat(
        self, name: str, incarnation: str, changed: Mapping[str, Arg], times: Times | None = None,
        batch: Batch | None = None,
    ) -> Beat | None:  # fmt: skip
        """Send the heartbeat of a node. Returns None if a sweep has declared the node dead, which must register again.

        `changed`: fields of its record that changed. `times`: the recent run times of its tasks; None: unchanged.
        `batch`: counts for the measures in Redis, added only once, even if the same batch is sent again.
        """
        fields = [part for pair in changed.items() for part in pair]
        ttl = milliseconds(self.store.settings.node_ttl)
        sent = "" if times is None else dumps(times)
        measures = "" if batch is None else dumps(batch)
        verdict, wakes, drains, *rest = node_beat(self.store, name, incarnation, ttl, sent, measures, *fields)
        if verdict != b"alive":
            return None
        due, busy, swept, now = rest
        return Beat(wakes, None if drains < 0 else drains / 1000, bool(due), bool(busy), swept, now)

    def drain(self, name: str, on: bool, act: str) -> bool:
        """Drain a node if `on` is True, else let it take jobs again. Returns True if that changed anything. `act`: who
        does so and why, as JSON.
        """
        return node_drain(self.store, name, on, act)

    def leave(self, name: str, incarnation: str, held: Sequence[str] | None = None) -> bool:
        """Remove the record of a node whose worker has ended. Returns False if the node was not registered, or a newer
        worker has registered under its name. `held`: the ids of the jobs of a worker that was killed; None: the worker
        shut down normally.
        """
        return node_leave(self.store, name, incarnation, "" if held is None else dumps(held))

    def drained(self) -> dict[str, ActNote]:
        """Read which nodes operators drain, by name: who did so, when and why. Such a node may be dead."""
        acts = self.store.read("HGETALL", self.store.key("drained"))
        return {name.decode(): act for name, text in sorted(acts.items()) if (act := act_in(text))}

    def all(self) -> list[Node]:
        """Read the records of all nodes, sorted by name: also of a dead node, until a sweep removes it."""
        names = sorted(name.decode() for name in self.store.read("ZRANGE", self.store.key("alive"), 0, -1))
        asked = [command for name in names for command in self._commands(name)]
        *replies, clock = self.store.read_many([*asked, clock_read.looking(self.store)])
        now = ClockReading(*clock).uptime
        nodes = [_node(name, now, replies[8 * i : 8 * i + 8]) for i, name in enumerate(names)]
        return [node for node in nodes if node]

    def living(self) -> list[Node]:
        """Read the records of the nodes whose last heartbeat is recent enough, sorted by name."""
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
    """Build a Node from Redis' replies to `_commands`; None if the node has no record any more. `now`: ms, by the clock
    that leases go by (`ClockReading.uptime`).
    """
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
        slowdown=reader.get("pace", float, 1.0),
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
