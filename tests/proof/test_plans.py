"""Plans beside the acts, over random states: what a dry run says is what the act does."""

from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

from coordinator.core.jobs.record import fields
from coordinator.core.lanes.view import lanes_at
from coordinator.ops.verbs.bulk import on_filter
from coordinator.ops.verbs.plan import (
    STOPPING,
    Plan,
    Projection,
    of_cancel,
    of_move,
    of_release,
    of_retarget,
    of_retry,
)
from coordinator.ops.verbs.retarget import retarget
from proof.model.beside import ACT
from proof.model.machine import ENDS_OF_LINE, KEY, PICK, A, B
from proof.model.steps import act
from proof.model.wholes import Whole
from tests.harness.long import long
from tests.harness.redis import RedisServer

KNOWN = {
    *(("cancel", state) for state in ("waiting", "ready", "running", "held", "parked", "retrying", "collected")),
    *(("retry", state) for state in ("held", "retrying", "failed", "cancelled", "expired")),
    *(("release", state) for state in ("running", "parked")),
    *(("move", state) for state in ("waiting", "scheduled")),
    *(("retarget", state) for state in ("waiting", "ready", "held", "at work")),
    *(("pause", "open"), ("resume", "paused")),
}
STARTING = {"cancel", "release", "pause", "resume", "move"}
RICH = (11, 30, 34, 53, 159, 37, 88)  # courses that have all of it between them
STARTED = ("running", "held", "parked", "retrying", "ready")


class Planned(Whole):
    seen: ClassVar[set[tuple[str, str, str]]]
    started: ClassVar[set[str]]

    def begin(self, chance: Random) -> None:
        """Without quotas: a plan says whose turn in its lanes comes, not whether it has units then."""
        super().begin(chance)
        self.without.add("flow")

    @classmethod
    def known(cls) -> set[tuple[str, str]]:
        return {(what, state) for what, state, _ in cls.seen}

    def waiting(self) -> set[str]:
        return {job.id for job in self.model.jobs.values() if job.state == "waiting"}

    def started_of(self, before: set[str]) -> set[str]:
        """Who waited and does not any more; a waiter for a lock that had fallen silent has left instead."""
        return {name for name in before if self.model.jobs[name].state in ("ready", "running")}

    def hold_against(self, plan: Plan, name: str, before: set[str]) -> None:
        """What the machine has done since: it is the model's word and Redis's."""
        state = fields(self.store, name, "state")[0]
        for hit in plan.hits:
            type(self).seen.add((plan.act, hit.state, hit.becomes))
            job = self.model.jobs[name]
            now = "rolling_back" if job.phase == "rollback" and state in ("ready", "running", "parked") else state
            assert hit.thing == f"job {name}"
            assert now == ("running" if hit.becomes == STOPPING else hit.becomes), f"{plan} of {name}, which is {now}"
            if hit.becomes == STOPPING:
                self.stop(name)
        self.hold_starts(plan, before - {name})

    def hold_starts(self, plan: Plan, before: set[str]) -> None:
        got = self.started_of(before)
        assert got == set(plan.starts) & before, f"{plan}: {got} started"
        if got:
            type(self).started.add(plan.act)

    def stop(self, name: str) -> None:
        """Its attempt is over."""
        job = self.model.jobs[name]
        taking = next(one for one in self.takings if one.id == name and one.token == job.token)
        again, self.again = self.again, False
        self._lose(taking, "lost", 0, False)
        self.again = again

    @act(5, keys=[(A,), (A, B), (B,)], pick=PICK)
    def submit_one_that_is_held(self, keys: tuple[str, ...], pick: int) -> None:
        self.submit(keys, 0, 1, ["hold"], pick)

    @act(5, keys=[(A,), (A, B), (B,)], pick=PICK)
    def submit_to_a_busy_lane(self, keys: tuple[str, ...], pick: int) -> None:
        self.submit(keys, 0, 1, ["undo"], pick)

    @act(3, part="operators", key=KEY, until=[""])
    def pause(self, key: str, until: str | int) -> None:
        self.steer("pause", key, lambda: super(Planned, self).pause(key, until))

    @act(6, part="operators", key=KEY)
    def resume(self, key: str) -> None:
        self.steer("resume", key, lambda: super(Planned, self).resume(key))

    def steer(self, verb: Any, key: str, do: Any) -> None:
        """As an act on a filter does it."""
        plan, before = on_filter(self.store, verb, {"key": key})[0].plan(), self.waiting()
        self.again = False
        do()
        [now] = lanes_at(self.store, [key], 1)
        for hit in plan.hits:
            type(self).seen.add((verb, hit.state, hit.becomes))
            assert hit.thing == f"lane {key}"
            assert hit.becomes == ("paused" if now.paused else "open"), plan
        self.hold_starts(plan, before)

    @act(8, part="operators", pick=PICK, priority=[None, -1, 3], to=ENDS_OF_LINE)
    def move_as_planned(self, pick: int, priority: int | None, to: Any) -> None:
        name = self.any_job(pick, "waiting", "scheduled")
        job = self.model.job(name)
        if job is None:
            return
        plan, before = of_move(look_ := Projection(self.store), [look_.job(job.id)], priority, to), self.waiting()
        state, self.again = job.state, False
        expected = self.model.move(name, priority, to, asked := self.new("m"))
        assert self.call("job_move", name, "" if priority is None else priority, to, ACT, asked) == list(expected)
        assert [hit.state for hit in plan.hits] == ([state] if expected[1] else [])
        type(self).seen |= {("move", hit.state, to) for hit in plan.hits}
        self.hold_starts(plan, before)

    @act(4, part="operators")
    def retarget(self) -> None:
        """There and back: the model knows no tasks."""
        store = self.store
        there = {"shop.work": "shop.send", "shop.send": "shop.work"}
        for old, new in there.items():
            plan, was = of_retarget(store, old, new, lambda kind: kind), self.tasks()
            done = retarget(store, old, new, lambda kind: kind, ACT)
            changed = {name for name, task in self.tasks().items() if task != was[name]}
            assert (plan.count, plan.at_work) == done
            assert {hit.thing for hit in plan.hits} >= {f"job {name}" for name in changed}
            type(self).seen |= {("retarget", hit.state, "") for hit in plan.hits}
            type(self).seen |= {("retarget", "at work", "")} if plan.at_work else set()

    def tasks(self) -> dict[str, str]:
        return {name: one.get("task", "") for name, one in self.dump().records().items()}

    @act(8, part="operators", pick=PICK, started=[True, True, False])
    def cancel(self, pick: int, started: bool) -> None:
        name = self.any_job(pick, *(STARTED if started else ()))
        if job := self.model.job(name):
            plan = of_cancel(look := Projection(self.store), [look.job(job.id)])
            self.act_upon(job.id, plan, lambda: self._cancel(name))

    @act(8, part="operators", pick=PICK, ended=[True, True, False], to=ENDS_OF_LINE)
    def retry(self, pick: int, ended: bool, to: Any) -> None:
        states = ("held", "retrying", "failed", "cancelled", "rolled_back", "double_fault", "expired") if ended else ()
        name = self.any_job(pick, *states)
        if job := self.model.job(name):
            plan = of_retry(look := Projection(self.store), [look.job(job.id)], to)
            self.act_upon(job.id, plan, lambda: self._retry(name, to))

    def act_upon(self, name: str, plan: Plan, do: Callable[[], None]) -> None:
        before, was, self.again = self.waiting(), self.snapshot(name), False
        do()
        if not plan.hits:
            assert self.snapshot(name) == was, "the plan hits nothing"
        self.hold_against(plan, name, before)

    @act(6, part="operators", key=KEY, named=[True, False], pick=PICK)
    def release(self, key: str, named: bool, pick: int) -> None:
        holder = next((job.id for job in self.model.line(key)), "") if named else ""
        plan, before = of_release(Projection(self.store), key, holder), self.waiting()
        self.again = False
        self._release(key, holder)
        taken = [hit.thing.removeprefix("job ") for hit in plan.hits]
        for name in taken:
            self.hold_against(plan, name, before)
        if not taken:
            assert not self.started_of(before)

    def snapshot(self, name: str) -> dict[str, str]:
        return dict(self.dump().records().get(name, {}))


def test_a_plan_says_what_the_act_does_and_what_starts(redis_server: RedisServer) -> None:
    class Here(Planned):
        url = redis_server.url(9)
        seen: ClassVar[set[tuple[str, str, str]]] = set()
        started: ClassVar[set[str]] = set()

    for place, number in enumerate(dict.fromkeys((*RICH, *range(60)))):
        if place < long(15, 60) or KNOWN - Here.known() or STARTING - Here.started:
            Here.course(number, 40)
    assert KNOWN - Here.known() == set()
    assert Here.started == STARTING
