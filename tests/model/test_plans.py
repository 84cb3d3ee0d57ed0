"""Plans beside the acts, over random states: what a dry run says is what the act does."""

from typing import Any, ClassVar

from coordinator.jobs.record import fields
from coordinator.lanes.plan import STOPPING, Look, Plan, of_cancel, of_release, of_retry
from tests.harness.redis import RedisServer
from tests.model.machine import ENDS_OF_LINE, KEY, PICK, A, B
from tests.model.steps import act
from tests.model.wholes import Whole

KNOWN = {
    *(("cancel", state) for state in ("waiting", "ready", "running", "held", "parked", "retrying", "collected")),
    *(("retry", state) for state in ("held", "retrying", "failed", "cancelled", "expired")),
    *(("release", state) for state in ("running", "parked")),
}
RARE = (81, 380, 386, 388)  # a job that runs alone, a rollback that is due, a waiter that fell silent
STARTED = ("running", "held", "parked", "retrying", "ready")


class Planned(Whole):
    seen: ClassVar[set[tuple[str, str, str]]]
    started: ClassVar[int]

    @classmethod
    def known(cls) -> set[tuple[str, str]]:
        return {(what, state) for what, state, _ in cls.seen}

    def cancelling(self, name: str) -> Plan:
        return of_cancel(look := Look(self.on.store), [look.job(name)])

    def retrying(self, name: str, to: Any) -> Plan:
        return of_retry(look := Look(self.on.store), [look.job(name)], to)

    def waiting(self) -> set[str]:
        return {job.id for job in self.model.jobs.values() if job.state == "waiting"}

    def started_of(self, before: set[str]) -> set[str]:
        """Who waited and does not any more; a waiter for a lock that had fallen silent has left instead."""
        return {name for name in before if self.model.jobs[name].state in ("ready", "running")}

    def hold_against(self, plan: Plan, name: str, before: set[str]) -> None:
        """What the machine has done since: it is the model's word and Redis's."""
        state = fields(self.on.store, name, "state")[0]
        for hit in plan.hits:
            type(self).seen.add((plan.act, hit.state, hit.becomes))
            job = self.model.jobs[name]
            now = "rolling_back" if job.phase == "rollback" and state in ("ready", "running", "parked") else state
            assert hit.thing == f"job {name}"
            assert now == ("running" if hit.becomes == STOPPING else hit.becomes), f"{plan} of {name}, which is {now}"
            if hit.becomes == STOPPING:
                self.stop(name)
        got = self.started_of(before) - {name}
        assert got == set(plan.starts) - {name}, f"{plan}: {got} started"
        type(self).started += bool(got)

    def stop(self, name: str) -> None:
        """Its attempt is over."""
        job = self.model.jobs[name]
        taking = next(one for one in self.on.takings if one.id == name and one.token == job.token)
        again, self.again = self.again, False
        self._lose(taking, "lost", 0, False)
        self.again = again

    @act(5, keys=[(A,), (A, B), (B,)], pick=PICK)
    def submit_one_that_is_held(self, keys: tuple[str, ...], pick: int) -> None:
        self.submit(keys, 0, 1, ["hold"], pick)

    @act(5, part="limits", keys=[(A,), (A, B), (B,)], flavour=["alone", "undo"], pick=PICK)
    def submit_to_a_busy_lane(self, keys: tuple[str, ...], flavour: str, pick: int) -> None:
        self.submit(keys, 0, 1, [flavour, "bare"], pick)

    @act(4, part="limits", key=[A, A, B], limit=[1, 2, 3, 3])
    def set_limit(self, key: str, limit: int) -> None:
        super().set_limit(key, limit)

    @act(8, part="operators", pick=PICK, started=[True, True, False])
    def cancel(self, pick: int, started: bool) -> None:
        name = self.any_job(pick, *(STARTED if started else ()))
        job = self.model.job(name)
        if job is None:
            return
        plan, before, was = self.cancelling(job.id), self.waiting(), self.snapshot(job.id)
        expected = self.model.cancel(name)
        self.again = False
        assert self.on.call("job_cancel", name, self.act_json()) == expected
        if not plan.hits:
            assert self.snapshot(job.id) == was, "the plan hits nothing"
        self.hold_against(plan, job.id, before)

    @act(8, part="operators", pick=PICK, ended=[True, True, False], to=ENDS_OF_LINE)
    def retry(self, pick: int, ended: bool, to: Any) -> None:
        states = ("held", "retrying", "failed", "cancelled", "rolled_back", "double_fault", "expired") if ended else ()
        name = self.any_job(pick, *states)
        job = self.model.job(name)
        if job is None:
            return
        plan, before, was = self.retrying(job.id, to), self.waiting(), self.snapshot(job.id)
        self.again = False
        self._retry(name, to)
        if not plan.hits:
            assert self.snapshot(job.id) == was, "the plan hits nothing"
        self.hold_against(plan, job.id, before)

    @act(6, part="operators", key=KEY, named=[True, False], pick=PICK)
    def release(self, key: str, named: bool, pick: int) -> None:
        holder = next((job.id for job in self.model.line(key)), "") if named else ""
        plan, before = of_release(Look(self.on.store), key, holder), self.waiting()
        self.again = False
        self._release(key, holder)
        taken = [hit.thing.removeprefix("job ") for hit in plan.hits]
        for name in taken:
            self.hold_against(plan, name, before)
        if not taken:
            assert not self.started_of(before)

    def snapshot(self, name: str) -> dict[str, str]:
        return dict(self.on.dump().records().get(name, {}))

    def act_json(self) -> str:
        return '{"why": "why", "by": "who"}'


def test_a_plan_says_what_the_act_does_and_what_starts(redis_server: RedisServer) -> None:
    class Here(Planned):
        url = redis_server.url(9)
        seen: ClassVar[set[tuple[str, str, str]]] = set()
        started = 0

    for number in (*range(60), *RARE):
        Here.course(number, 40)
    assert KNOWN - Here.known() == set()
    assert Here.started > 10
