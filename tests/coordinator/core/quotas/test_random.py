"""Random calls of everything that moves jobs with quotas. After each, what Redis has must fit together: units, queues,
offers, and who may go. At the end all jobs end, without a sweep.

`LONG=1` makes many more courses. A failure names its seed and the calls before it.
"""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from coordinator import Coordinator
from coordinator.core.author import act_of
from coordinator.core.jobs.record import TERMINAL
from coordinator.core.jobs.uses import Use, text_of_uses, uses_in
from coordinator.core.store.client import Store
from tests.harness.hand_node import Puppet, Taken
from tests.harness.waiting import wait_until

SEEDS = range(200 if os.environ.get("LONG") else 8)
CALLS = 120
KEYS = ("k0", "k1", "k2", "k3")
LIMITS = {"a": 2, "b": 1, "c": 3}
DEFAULT = 2  # of x/*
RATE, BURST = 200, 3  # of r
NAMES = (*LIMITS, "x/1", "r")
SEEN = ("state", "phase", "step", "task", "class", "undo", "home", "was", "spec")


class Quota(NamedTuple):
    limit: float
    used: int
    closed: bool
    users: dict[str, int]
    queue: dict[str, float]
    offers: set[str]


@dataclass
class View:
    """All of an installation at one moment."""

    quotas: dict[str, Quota]
    jobs: dict[str, dict[str, str]]
    lines: dict[str, list[str]]

    def uses(self, job_id: str) -> dict[str, Use]:
        return uses_in(self.jobs[job_id].get("uses", ""))

    def keys(self, job_id: str) -> list[str]:
        return [key for key in self.jobs[job_id]["keys"].split("\n") if key]

    def in_front(self, job_id: str) -> bool:
        return all(self.lines[key][:1] == [job_id] for key in self.keys(job_id))

    def units(self, job_id: str, quota: str) -> float:
        units = self.uses(job_id)[quota].units
        return max(1, self.quotas[quota].limit) if units == "all" else units

    def is_alone(self, job_id: str, quota: str) -> bool:
        return self.uses(job_id)[quota].units == "all"

    def kind(self, job_id: str) -> tuple[str | None, str | None]:
        job = self.jobs[job_id]
        return job.get("task"), job.get("class")

    def kind_in(self, job_id: str, quota: str) -> object:
        task, of = self.kind(job_id)
        return (task, of, self.uses(job_id)[quota].units) if of else ""

    def firsts(self, quota: str) -> list[str]:
        """The first job of each kind in a queue, in its order."""
        found: dict[object, str] = {}
        for waiter in sorted(self.quotas[quota].queue, key=lambda one: (self.quotas[quota].queue[one], one)):
            found.setdefault(self.kind_in(waiter, quota), waiter)
        return list(found.values())

    def lacks(self, job_id: str, quota: str, offered: bool = True) -> bool:
        """Besides the rate: what a first job waits for. `offered`: also for units that others were offered."""
        one, kind, taken = self.quotas[quota], self.kind_in(job_id, quota), 0
        if offered and self.kind(job_id)[1]:
            taken = sum(self.units(other, quota) for other in one.offers if self.kind_in(other, quota) == kind)
        elif offered:  # a lock
            taken = sum(self.units(other, quota) for other in one.offers)
        if one.closed or any(self.is_alone(user, quota) for user in one.users):
            return True
        if self.is_alone(job_id, quota):
            return one.limit == 0 or one.used + taken > 0
        return one.used + taken + self.units(job_id, quota) > one.limit


def text(value: Any) -> str:
    return str(value.decode())


def look(store: Store, quotas: dict[str, float]) -> View:
    client: Any = store._client
    found, now = {}, store.now()

    def members(name: str) -> dict[str, float]:
        return {text(one): score for one, score in client.zrange(name, 0, -1, withscores=True)}

    for name, limit in quotas.items():
        raw = {text(one): text(value) for one, value in client.hgetall(store.key("quota", name)).items()}
        users = {text(one): int(units) for one, units in client.hgetall(store.key("quota-users", name)).items()}
        offers = {one.rpartition("\n")[2] for one in members(store.key("quota-offers", name))}
        closed, kinds = raw.get("until", "+0")[1:], members(store.key("quota-queue", name))
        jobs = {kind: members(store.key("quota-kind", f"{name}\n{kind}")) for kind in kinds}
        assert {kind: min(places.values()) for kind, places in jobs.items()} == kinds, f"{name}: kinds out of place"
        queue = {one: place for places in jobs.values() for one, place in places.items()}
        found[name] = Quota(limit, int(raw.get("used", 0)), int(closed) > now, users, queue, offers)
    prefix = store.key("job", "")
    names = list(client.scan_iter(f"{prefix}*", 1000))
    with client.pipeline(transaction=False) as pipe:
        for one in names:
            pipe.hgetall(one)
        records = {text(one)[len(prefix) :]: raw for one, raw in zip(names, pipe.execute(), strict=True)}
    read = {one: {text(name): text(value) for name, value in raw.items()} for one, raw in records.items()}
    jobs = {one: job for one, job in read.items() if job.get("state", "succeeded") not in TERMINAL}
    lines = {key: [text(one) for one in client.zrange(store.key("line", key), 0, -1)] for key in KEYS}
    return View(found, jobs, lines)


def retarget(store: Store, job_id: str, task: str) -> None:
    client: Any = store._client
    seen = "\0".join((one or b"").decode() for one in client.hmget(store.key("job", job_id), *SEEN))
    assert store.step("job_retarget", job_id, seen, act_of(), "task", task, "class", "shop\ncelery")


def check(view: View) -> None:
    """What holds after each call."""
    for name, quota in view.quotas.items():
        assert quota.used == sum(quota.users.values()), f"{name}: used is not the sum of its users"
        for user in quota.users:
            assert user in view.jobs, f"{name}: {user}, which is over, keeps units"
            check_user(view, name, user)
        for waiter in quota.queue:
            assert view.jobs.get(waiter, {}).get("lack") == name, f"{name}: {waiter} stands in its queue by mistake"
        for offer in quota.offers:
            job = view.jobs.get(offer, {})
            assert (job.get("state"), job.get("lack")) == ("ready", None), f"{name}: the offer of {offer} is left"
        for first in view.firsts(name) if name != "r" else ():
            assert view.lacks(first, name), f"{name}: {first} could go, and waits"
            if view.lacks(first, name, offered=False) or not view.jobs[first].get("class"):
                break  # it holds up those behind it, and so does a lock
    for job_id in view.jobs:
        check_job(view, job_id)


def check_user(view: View, name: str, user: str) -> None:
    job, use = view.jobs[user], view.uses(user)[name]
    keeps = use.until == "end" and job.get("taken")
    if job.get("phase") != "rollback":
        apart = job.get("apart") and (job.get("lack") or job["state"] == "ready")
        assert job["state"] == "running" or keeps or apart, f"{name}: {user} is {job['state']} and has units"
    assert use.units in ("all", view.quotas[name].users[user]), f"{name}: {user} has other units than it uses"


def check_job(view: View, job_id: str) -> None:
    job, uses = view.jobs[job_id], view.uses(job_id)
    state, lack = job["state"], job.get("lack")
    if lack:
        assert state in ("waiting", "ready"), f"{job_id} is {state} and lacks a quota"
        assert job_id in view.quotas[lack].queue, f"{job_id} stands in no queue"
        assert state == "ready" or view.in_front(job_id), f"{job_id} waits for {lack} and is in front of no lane"
    if job.get("phase") == "rollback":
        return
    if state == "running":
        missing = [name for name in uses if job_id not in view.quotas[name].users]
        assert not missing, f"{job_id} runs without units of {missing}"
    if state == "waiting" and view.in_front(job_id):
        assert lack, f"{job_id} is in front of all its lanes, waits, and stands in no queue"
    if state == "ready" and not lack:
        missing = [name for name in uses if not {job_id} & {*view.quotas[name].offers, *view.quotas[name].users}]
        assert not missing, f"{job_id} is ready and not offered to {missing}"


def check_step(before: View, after: View, renewed: bool) -> None:
    """That nobody got more units than there are, and nobody passed the head of a queue."""
    for name, quota in after.quotas.items():
        old = before.quotas[name]
        new = [one for one in quota.users if one not in old.users]
        if new and not renewed:
            alone = [one for one in quota.users if after.is_alone(one, name)]
            assert quota.used <= quota.limit, f"{name}: {new} got more units than there are"
            assert not alone or len(quota.users) == 1, f"{name}: {alone} is not alone: {quota.users}"
        for waiter in old.queue:
            stands = quota.queue.get(waiter) == old.queue[waiter] and len(after.uses(waiter)) == 1
            for one in new if stands and not renewed else ():
                alike = after.kind(one) == after.kind(waiter)  # others may be faster where their node is
                behind = one in old.queue and old.queue[one] > old.queue[waiter]
                assert not (alike and behind), f"{name}: {one} passed {waiter}"


@dataclass
class Course:
    """Random calls, and what the calls before left in hand."""

    node: Puppet
    coordinator: Coordinator
    random: random.Random
    count: int = 0
    running: list[Taken] = field(default_factory=list)
    lost: list[Taken] = field(default_factory=list)
    locks: list[tuple[str, str]] = field(default_factory=list)
    limits: dict[str, float] = field(default_factory=lambda: {**LIMITS, "x/1": DEFAULT, "r": float("inf")})
    calls: list[str] = field(default_factory=list)
    renewed: bool = False

    def declare(self) -> None:
        for name, limit in LIMITS.items():
            self.coordinator.quota(name, concurrency=limit)
        self.coordinator.quota("x/*", concurrency=DEFAULT)
        self.coordinator.quota("r", rate=f"{RATE}/s", burst=BURST)

    def some_uses(self) -> dict[str, Use]:
        names = self.random.sample(NAMES, self.random.choice((1, 1, 1, 2, 2, 3)))
        most = {**LIMITS, "x/1": DEFAULT, "r": 2}
        uses = {}
        for name in names:
            alone = name != "r" and self.random.random() < 0.15
            uses[name] = Use("all") if alone else Use(self.random.randint(1, most[name]))
        first = min(uses)  # who keeps one and lacks another that comes before would wait for ever
        if self.random.random() < 0.3:
            uses[first] = Use(uses[first].units, "end")
        return uses

    def some(self, *wanted: str) -> str | None:
        """A job in one of these states."""
        jobs = look(self.node.store, {}).jobs
        found = sorted(one for one, job in jobs.items() if job["state"] in wanted and job.get("class"))
        return self.random.choice(found) if found else None

    def submit(self) -> str:
        self.count += 1
        keys = self.random.sample(KEYS, self.random.choice((0, 1, 1, 2)))
        uses = self.some_uses() if not keys or self.random.random() < 0.8 else {}
        options: dict[str, Any] = {
            "priority": self.random.choice((0, 0, 0, 1, -1)),
            "max_attempts": 3,
            "on_failure": self.random.choice(("release", "release", "hold")),
            "task": self.random.choice(("shop.work", "shop.work", "shop.other")),
        }
        self.fits(uses)
        if uses:
            options["uses"] = uses
        self.node.submit(sorted(keys), job_id=f"j{self.count}", **options)
        return f"j{self.count} {keys} {uses} {options['priority']}"

    def fits(self, uses: dict[str, Use]) -> None:
        """A submit of more units than there are is refused."""
        for name, use in uses.items():
            if use.units != "all" and 0 < self.limits[name] < use.units:
                uses[name] = Use(int(self.limits[name]), use.until)

    def take(self) -> str:
        taken = self.node.take()
        if taken:
            self.running.append(taken)
        return taken.id if taken else "nothing"

    def pick(self, held: list[Any]) -> Any:
        return held.pop(self.random.randrange(len(held))) if held else None

    def finish(self) -> str:
        taken = self.pick(self.running)
        (kind,) = self.random.choices(
            ("succeeded", "failed", "raised", "conflict", "parked", "cooled_down"), (3, 1, 3, 1, 1, 1)
        )
        if not taken:
            return self.take()
        again = self.random.random() < 0.5
        delay = self.random.choice((0, 60_000)) if kind != "cooled_down" else 60_000
        detail = '{"ids": ["sub"], "one": false}' if kind == "parked" else '"detail"'
        token = f"next-{self.count}-{len(self.calls)}-token" if again else ""
        done = self.node.finish(taken, kind, token, delay, detail)
        if done.next:
            self.running.append(done.next)
        if not again and self.random.random() < 0.3:
            self.node.finish(taken, kind, "", delay, detail)
        return f"{taken.id} {kind} {delay}, next: {done.next and done.next.id}"

    def lose(self) -> str:
        if not (taken := self.pick(self.running)):
            return "nothing"
        how = self.random.choice(("lost", "lost", "stopped", "handed", "timed_out"))
        self.node.lose(taken, how)
        self.lost.append(taken)
        return f"{taken.id} {how}"

    def come_back(self) -> str:
        if not (taken := self.pick(self.lost)):
            return "nothing"
        if self.random.random() < 0.5:
            return f"{taken.id} finishes late: {self.node.finish(taken).verdict}"
        self.renewed = True
        if self.node.renew(taken) == [True]:
            self.running.append(taken)
        return f"{taken.id} renewed"

    def cancel(self) -> str:
        job_id = self.some("waiting", "ready", "retrying", "parked", "held", "running")
        if job_id:
            self.node.lanes.cancel(job_id)
        return str(job_id)

    def retry(self) -> str:
        job_id = self.some("retrying", "held")
        if job_id:
            self.node.lanes.retry(job_id)
        return str(job_id)

    def move(self) -> str:
        job_id, to = self.some("waiting"), self.random.choice(("front", "back"))
        priority = self.random.choice((None, 1, -1))
        if job_id:
            self.node.lanes.move(job_id, priority=priority, to=to)  # type: ignore[arg-type]
        return f"{job_id} {priority} {to}"

    def pause(self) -> str:
        key = self.random.choice(KEYS)
        if self.coordinator.pause(key):
            return key
        self.coordinator.resume(key)
        return f"{key} resumed"

    def release(self) -> str:
        key = self.random.choice(KEYS)
        return f"{key} {self.node.lanes.release(key)}"

    def retarget(self) -> str:
        job_id = self.some("waiting", "ready", "retrying")
        if job_id:
            retarget(self.node.store, job_id, "shop.other")
        return str(job_id)

    def cool(self) -> str:
        """Mostly one that is closed is opened again."""
        closed = [name for name, quota in look(self.node.store, self.limits).quotas.items() if quota.closed]
        if closed and self.random.random() < 0.8:
            name, until = self.random.choice(closed), None
        else:
            name, until = self.random.choice(NAMES), 60
        self.coordinator.cool_down(name, until)
        return f"{name} {until}"

    def limit(self) -> str:
        name = self.random.choice(tuple(LIMITS))
        self.limits[name] = self.random.randint(0, 4)
        self.coordinator.quota(name, concurrency=int(self.limits[name]))
        return f"{name} {self.limits[name]}"

    def lock(self) -> str:
        if self.locks and self.random.random() < 0.6:
            lock_id, token = self.pick(self.locks)
            self.node.store.step("lock_release", lock_id, token)
            return f"released {lock_id}"
        self.count += 1
        lock_id, uses = f"lock{self.count}", self.some_uses()
        self.fits(uses)
        written = text_of_uses({name: uses[name] for name in sorted(uses)})
        key = self.random.choice(("", *KEYS))
        self.node.store.step("lock_take", lock_id, key, "queue", f"{lock_id}-token", 600_000, 0, written)
        self.locks.append((lock_id, f"{lock_id}-token"))
        return f"{lock_id} {key} {uses}"

    def age(self) -> str:
        """A minute passes for a job that lacks a quota, and that quota is looked at."""
        jobs = look(self.node.store, {}).jobs
        found = sorted(one for one, job in jobs.items() if job.get("lack"))
        if not found:
            return "nothing"
        job_id = self.random.choice(found)
        self.node.pass_a_minute(job_id)
        self.coordinator.cool_down(jobs[job_id]["lack"])
        return job_id

    def sweep(self) -> str:
        return str(self.node.sweep())

    def forget_ended(self, view: View) -> None:
        self.running = [one for one in self.running if view.jobs.get(one.id, {}).get("token") == one.token]
        self.locks = [one for one in self.locks if one[0] in view.jobs]


CALLED: tuple[tuple[Callable[[Course], str], int], ...] = (
    (Course.submit, 24), (Course.take, 24), (Course.finish, 22), (Course.lose, 4), (Course.come_back, 3),
    (Course.cancel, 3), (Course.retry, 4), (Course.move, 4), (Course.pause, 5), (Course.release, 1),
    (Course.retarget, 2), (Course.cool, 6), (Course.limit, 3), (Course.lock, 5), (Course.age, 5), (Course.sweep, 1),
)  # fmt: skip


def play(course: Course) -> Iterator[None]:
    store = course.node.store
    before = look(store, course.limits)
    calls, weights = zip(*CALLED, strict=True)
    for _ in range(CALLS):
        (call,) = course.random.choices(calls, weights)
        course.renewed = False
        course.calls.append(call.__name__)
        course.calls[-1] = f"{call.__name__} {call(course)}"
        after = look(store, course.limits)
        check(after)
        check_step(before, after, course.renewed)
        course.forget_ended(after)
        before = after
        yield


def go_on(course: Course) -> None:
    """All who have something end, and the next one starts."""
    node = course.node
    for lock_id, token in course.locks:
        node.store.step("lock_release", lock_id, token)
    for taken in course.running:
        node.finish(taken)
    view = look(node.store, course.limits)
    check(view)
    course.forget_ended(view)
    for job_id, job in view.jobs.items():
        if job["state"] in ("retrying", "held"):
            node.lanes.retry(job_id)
        if job["state"] == "parked":
            node.lanes.cancel(job_id)
    if view.jobs and not course.running and course.take() == "nothing":
        wait_until(lambda: course.take() != "nothing", what=lambda: f"nothing goes on: {view}")  # the rate


def end(course: Course) -> None:
    """Everything that closes the way goes, each holder ends: then all jobs do."""
    node, coordinator = course.node, course.coordinator
    for key in KEYS:
        coordinator.resume(key)
    course.limits |= LIMITS
    for name in NAMES:
        coordinator.cool_down(name)
        if name in LIMITS:
            coordinator.quota(name, concurrency=LIMITS[name] + 1)
            course.limits[name] = LIMITS[name] + 1

    while look(node.store, course.limits).jobs:
        go_on(course)
    view = look(node.store, course.limits)
    left = {name: one for name, one in view.quotas.items() if one.used or one.users or one.queue or one.offers}
    assert not left


@pytest.mark.parametrize("seed", SEEDS)
def test_units_queues_and_offers_fit_together_after_each_of_many_random_calls_and_all_jobs_end(
    node: Puppet, coordinator: Coordinator, seed: int
) -> None:
    course = Course(node, coordinator, random.Random(seed))
    course.declare()
    try:
        for _ in play(course):
            pass
        end(course)
    except Exception as error:
        error.add_note("\n".join(f"{number} {call}" for number, call in enumerate(course.calls)))
        raise
