"""Plans of acts on jobs that use quotas, beside the acts, over random states."""

import random
from typing import Any

from coordinator import Coordinator
from coordinator.core.jobs.options import Use
from coordinator.ops.verbs.plan import Plan
from tests.harness.hand_node import Puppet, Taken
from tests.harness.long import long

QUOTAS = ("q/a", "q/b", "q/c")
RICH = (102, 29, 79, 24, 87, 147)  # courses in which all of these acts let jobs start


class Course:
    """Random submits, claims and ends, and acts of operators, each beside its plan."""

    def __init__(self, number: int, coordinator: Coordinator, node: Puppet) -> None:
        self.random, self.coordinator, self.node = random.Random(number), coordinator, node
        self.number, self.jobs, self.takings = 0, list[str](), dict[str, Taken]()

    def run(self, steps: int) -> set[str]:
        """Returns the acts that let jobs start."""
        own, started = self.random, set[str]()
        for name in QUOTAS:
            self.coordinator.quota(name, concurrency=own.choice((1, 2, 3)))
        for _ in range(steps):
            if own.random() < 0.7:
                own.choice((self.submit, self.submit, self.take, self.take, self.take, self.end))()
            else:
                started |= self.act()
        return started

    def submit(self) -> None:
        own, self.number = self.random, self.number + 1
        names = own.sample(QUOTAS, own.choice((0, 1, 1, 2)))
        uses = {name: Use(own.choice((1, 1, 1, "all")), own.choice(("attempt", "attempt", "end"))) for name in names}
        keys = own.choice(([], [], ["k"], ["l"], ["k", "l"], [f"own/{self.number}"])) if uses else ["k"]
        more: dict[str, Any] = {"uses": uses} if uses else {}
        job_id = f"j{self.number}"
        more["task"] = own.choice(("shop.work", "shop.send"))
        self.node.submit(keys, job_id=job_id, priority=own.choice((0, 0, 3)), on_failure="hold", **more)
        self.jobs.append(job_id)

    def take(self) -> None:
        if taken := self.node.take():
            self.takings[taken.id] = taken

    def end(self) -> None:
        if self.takings:
            taken = self.takings.pop(self.random.choice([*self.takings]))
            kind = self.random.choice(("succeeded", "failed", "raised"))
            self.node.finish(taken, kind, delay=self.random.choice((0, 60_000)))

    def act(self) -> set[str]:
        own, c = self.random, self.coordinator
        job_id, key, name = own.choice(self.jobs or ["none"]), own.choice("kl"), own.choice(QUOTAS)
        plans: dict[str, tuple[Any, Any]] = {
            "pause": (lambda: c.plan.pause(key), lambda: c.pause(key)),
            "resume": (lambda: c.plan.resume(key), lambda: c.resume(key)),
            "release": (lambda: c.plan.release(key), lambda: c.release(key)),
        }
        units = own.choice((1, 2, 3, 5))
        plans["quota"] = (
            lambda: c.plan.quota(name, concurrency=units), lambda: c.quota(name, concurrency=units),
        )  # fmt: skip
        till = own.choice((None, 3600))
        plans["cool"] = (lambda: c.plan.cool_down(name, till), lambda: c.cool_down(name, till))
        if self.jobs:
            priority, to = own.choice((None, 0, 5)), own.choice(("back", "front"))
            plans["cancel"] = (lambda: c.plan.cancel(job_id), lambda: self.cancel(job_id))
            plans["retry"] = (lambda: c.plan.retry(job_id), lambda: c.retry(job_id))
            if self.state(job_id) == "waiting" and not c.job(job_id).taken:
                plans["move"] = (
                    lambda: c.plan.move(job_id, priority=priority, to=to),
                    lambda: c.move(job_id, priority=priority, to=to),
                )
        verb = own.choice([*plans])
        plan, do = plans[verb]
        return self.beside(verb, plan(), do, job_id)

    def cancel(self, job_id: str) -> None:
        """The process of a running one is stopped."""
        self.coordinator.cancel(job_id)
        if taken := self.takings.pop(job_id, None):
            self.node.lose(taken, "lost")

    def beside(self, verb: str, plan: Plan, do: Any, job_id: str) -> set[str]:
        before = {one: self.state(one) for one in self.jobs}
        do()
        after = {one: self.state(one) for one in self.jobs}
        own = {hit.thing.removeprefix("job ") for hit in plan.hits}
        got = {one for one in self.jobs if before[one] == "waiting" and after[one] == "ready"} - own
        assert got == set(plan.starts) - own, f"{verb} {job_id}: {plan}"
        for hit in plan.hits:
            if verb == "retry":
                assert after[job_id] == hit.becomes, plan
        return {verb} if got else set()

    def state(self, job_id: str) -> str:
        return self.coordinator.job(job_id).state

    def leave(self) -> None:
        for name in QUOTAS:
            self.coordinator.cool_down(name)
        for key in "kl":
            self.coordinator.resume(key)
        for job_id in self.jobs:
            self.cancel(job_id)


def test_a_plan_says_which_jobs_of_a_quota_s_queue_start(coordinator: Coordinator, node: Puppet) -> None:
    started = set[str]()
    for number in dict.fromkeys((*RICH, *range(long(10, 300)))):
        course = Course(number, coordinator, node)
        try:
            started |= course.run(60)
        except AssertionError as error:
            raise AssertionError(f"course {number}: {error}") from error
        course.leave()
        client = node.store._client
        for name in client.scan_iter(f"{node.store.prefix}job:*", 1000):
            client.delete(name)
    assert started >= {"cancel", "release", "resume", "quota", "cool", "move"}


def test_a_plan_of_a_default_names_the_jobs_that_start(coordinator: Coordinator, node: Puppet) -> None:
    coordinator.quota("tenant/*", concurrency=1)
    coordinator.quota("tenant/own", concurrency=1)
    for name in ("acme", "own"):
        for number in range(3):
            node.submit([], job_id=f"{name}{number}", uses=f"tenant/{name}")
    raised = coordinator.plan.quota("tenant/*", concurrency=2)
    assert [(hit.thing, hit.state, hit.becomes) for hit in raised.hits] == [
        ("quota tenant/*", "1 at once", "2 at once"),
    ]
    assert raised.starts == ("acme1",)
    dropped = coordinator.plan.drop_quota("tenant/*")
    assert (dropped.hits[0].becomes, set(dropped.starts)) == ("undeclared", {"acme1", "acme2"})
    assert coordinator.plan.quota("tenant/*", concurrency=1).hits == ()
    coordinator.drop_quota("tenant/*")
    coordinator.drop_quota("tenant/own")
    assert len(node.order()) == 6


def test_a_plan_knows_that_a_lock_waits_for_ready_jobs(coordinator: Coordinator, node: Puppet) -> None:
    coordinator.quota("q", concurrency=2)
    for n in range(4):
        node.submit([], job_id=f"j{n}", uses="q")
    assert node.store.step("lock_take", "lock", "", "queue", "token", 60_000, 86_400_000, "1 - q")[0] == b"queued"
    assert [node.lanes.job(f"j{n}").state for n in range(4)] == ["ready", "ready", "waiting", "waiting"]
    assert coordinator.plan.cancel("j3").starts == ()
    coordinator.cancel("j3")
    assert node.lanes.job("lock").state == "waiting"
    node.store.step("lock_release", "lock", "token")
    assert node.order() == ["j0", "j1", "j2"]


def test_a_plan_passes_over_a_job_of_a_queue_whose_record_is_gone(coordinator: Coordinator, node: Puppet) -> None:
    coordinator.quota("q", concurrency=1)
    for name in ("a", "b", "c"):
        node.submit([], job_id=name, uses="q")
    client, kind = node.store._client, node.store.key("quota-kind", "q\n1 shop.work\nshop\ncelery")
    assert client.zadd(kind, {"gone": -1})
    client.zadd(node.store.key("quota-queue", "q"), {"1 shop.work\nshop\ncelery": -1})
    assert coordinator.plan.cancel("a").starts == ("b",)
    coordinator.cancel("a")
    assert node.lanes.job("b").state == "ready"
    assert node.order() == ["b", "c"]
