"""A node and its runners played by hand: the steps called directly, one after the other, without processes."""

import itertools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from coordinator.core.fleet.nodes import About, Nodes
from coordinator.core.jobs.options import JobDefaults, SubmitOptions, TaskDefault
from coordinator.core.jobs.request import JobRequest, RequestMaker
from coordinator.core.jobs.submission import Submission
from coordinator.core.lanes.client import LaneClient
from coordinator.core.settings import Settings
from coordinator.core.store.client import Store

LIFE = 60_000  # ms
TASKS = ("shop.work", "shop.other")


class Taken(NamedTuple):
    id: str
    token: str
    runner: str
    attempt: int
    losses: int
    fence: int


class Finished(NamedTuple):
    verdict: str
    state: str
    next: Taken | None


def sketch(keys: str | list[str], task: str = "shop.work", queue: str = "celery", **options: Any) -> JobRequest:
    """A submit of the app `shop`; `args`, `kwargs` and `options` are the signature's."""
    named = {name: options.pop(name, default) for name, default in (("args", ()), ("kwargs", {}), ("options", {}))}
    settings = Settings.load(options.pop("settings", {}), {}, {})
    tell = options.pop("tell", False)
    target = JobDefaults("shop", lambda step: TaskDefault(queue, result=tell))
    return RequestMaker(settings, target).make(keys, {"task": task, **named}, cast(SubmitOptions, options))


class Puppet:
    """One node of the app `shop`. Times are ms."""

    def __init__(self, store: Store, name: str = "one", ttl: int = 60000) -> None:
        self.store = store
        self.name = name
        self.ttl = ttl
        self.incarnation = "a"
        self.lanes = LaneClient(store)
        self.nodes = Nodes(store)
        self._numbers = itertools.count(1)

    def up(
        self, capacity: int = 4, tasks: tuple[str, ...] = TASKS, queue: str = "celery", incarnation: str = "a"
    ) -> bool:
        """`queue`: several with commas, as Celery's -Q."""
        self.incarnation = incarnation
        about = {"app": "shop", "capacity": capacity, "ordinary": 0, "load": 0}
        serves = ["app shop", *(f"queue {one}" for one in queue.split(","))]
        return self.register(about, serves, tasks)

    def register(self, about: About, serves: Sequence[str], tasks: Sequence[str]) -> bool:
        """For a minute, or its `ttl`: nobody sends heartbeats for it, and a busy machine takes longer than `node_ttl`
        for a test.
        """
        life, lists = max(LIFE, self.ttl), map(json.dumps, (about, serves, tasks))
        return bool(self.store.step("node_register", self.name, self.incarnation, life, *lists) == b"registered")

    def submit(self, keys: str | list[str], **options: Any) -> Submission:
        return self.lanes.submit(sketch(keys, **options))

    def take(self, token: str | None = None, runner: str | None = None, bell: str = "") -> Taken | None:
        """`bell`: one that was rung; else one is rung by hand."""
        number = next(self._numbers)
        if not bell:
            bell = f"{number}-by-hand"
            self.store._client.zadd(self.store.key("rung", self.name), {bell: 2**53})
        token, runner = token or f"{self.name}-token-{number:04}", runner or f"{self.name}-runner-{number}"
        given = self.store.step("runner_take", self.name, self.incarnation, runner, bell, token, self.ttl)
        return _taken(given, token, runner)

    def must_take(self, token: str | None = None, runner: str | None = None, bell: str = "") -> Taken:
        taken = self.take(token, runner, bell)
        assert taken, "nothing was ready"
        return taken

    def take_all(self) -> list[Taken]:
        """All that may run now, each in a runner of its own."""
        return list(iter(self.take, None))

    def finish(
        self,
        taken: Taken,
        outcome: str = "succeeded",
        next_token: str = "",
        delay: int = 0,
        detail: str = '"detail"',
        following: tuple[str, str, Any] = ("", "", ""),
    ) -> Finished:
        """`next_token`: take the next ready job with it too. `following`: the class, task and time limit of a step."""
        verdict, state, given = self.store.step(
            "job_finish", taken.id, taken.token, outcome, detail, delay, "", *following, self.name, taken.runner,
            next_token, self.ttl,
        )  # fmt: skip
        return Finished(verdict.decode(), state.decode(), _taken(given, next_token, taken.runner))

    def park(self, taken: Taken, *ids: str | None, one: bool = False) -> Finished:
        """Until these sub-tasks have ended."""
        return self.finish(taken, "parked", detail=json.dumps({"ids": ids, "one": one}))

    def lose(self, taken: Taken, how: str = "lost") -> str:
        return str(self.store.step("job_lose", taken.id, taken.token, how, '"gone"', 0).decode())

    def renew(self, *taken: Taken) -> list[bool]:
        pairs = [part for one in taken for part in (one.id, one.token)]
        return [bool(reply) for reply in self.store.step("lease_renew", self.ttl, *pairs)]

    def work(self) -> dict[bytes, bytes]:
        entries: Any = self.store._client.hgetall(self.store.key("work", self.name))
        return dict(entries)

    def rung(self) -> list[str]:
        bells: Any = self.store._client.zrange(self.store.key("rung", self.name), 0, -1)
        return [bell.decode() for bell in bells]

    def ready(self) -> list[str]:
        return ready_jobs(self.store)

    def sweep(self) -> tuple[list[str], list[str]]:
        """Who was lost, which nodes are gone."""
        _, lost, gone, _, _ = self.store.step("sweep", 0, 2000, "")
        return [one.decode() for one in lost], [one.decode() for one in gone]

    def lapse(self, *job_ids: str) -> None:
        """Their leases and locks end as if the ttl had passed."""
        for job_id in job_ids:
            self.store._client.zadd(self.store.key("leases"), {job_id: 1}, xx=True)
            for key in self.lanes.job(job_id).keys:
                self.store._client.delete(self.store.key("lock", key))

    def pass_a_minute(self, job_id: str) -> None:
        """This job has lacked a quota for more than a minute: once its queue is looked at, units of the job's other
        quotas are set apart for it.
        """
        self.store._client.hset(self.store.key("job", job_id), "lacked", self.store.now() - 61_000)

    def locked_by(self, key: str) -> str | None:
        return locked_by(self.store, key)

    def names(self) -> set[str]:
        """All keys of the installation."""
        return {name.decode() for name in self.store._client.scan_iter(self.store.prefix + "*", 1000)}

    def order(self) -> list[str]:
        """Run everything that is ready, one at a time; the ids in order."""
        found = []
        while taken := self.take():
            found.append(taken.id)
            self.finish(taken)
        return found


def playing(module: Any, queue: str = "celery") -> Puppet:
    """A node of the app of this module (tests/harness/apps), played by hand; it knows all of the app's tasks."""
    puppet, app = Puppet(module.coordinator.store), module.app
    about: About = {"app": app.main, "capacity": 4, "ordinary": 0, "load": 0}
    puppet.register(about, [f"app {app.main}", f"queue {queue}"], list(app.tasks))
    return puppet


def locked_by(store: Store, key: str) -> str | None:
    """The token that its lock names."""
    held: Any = store._client.get(store.key("lock", key))
    return held and str(held.decode().partition(" ")[0])


def ready_jobs(store: Store, kind: str = "shop\ncelery") -> list[str]:
    """In no order; and each group that has some stands in its turn, once."""
    client: Any = store._client
    groups = client.zrange(store.key("ready", kind), 0, -1)
    there = {name for name in client.scan_iter(store.key("group", "*")) if name.decode().endswith("\n" + kind)}
    assert sorted(store.key("group", f"{group.decode()}\n{kind}").encode() for group in groups) == sorted(there)
    return [job_id.decode() for name in there for job_id in client.zrange(name, 0, -1)]


def _taken(given: Any, token: str, runner: str) -> Taken | None:
    if not given or len(given) == 2:  # or: ask again in a moment, which a runner does
        return None
    attempt, losses, fence = (int(given[place] or 0) for place in (4, 5, 6))
    return Taken(given[0].decode(), token, runner, attempt, losses, fence)
