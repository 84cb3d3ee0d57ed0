"""Everything that can be called, in any order: a state machine that drives the steps and the plain model alike.

The steps of runners, supervisors and operators are here, those of sorters in collecting.py, rows of steps in
courses.py, the rest in wholes.py. Left out are what only reads (counts, read after each step), and steps that touch no
lane and no job: those of the beats' schedules and of the inbox, which stands on the broker. test_model.py names each,
and sees that no other is.
"""

from random import Random
from typing import Any, TypeVar

from proof.model import asks
from proof.model.beside import ACT, STEADY, TTL, Beside, Taking
from proof.model.steps import act

T = TypeVar("T")

A, B, C = "g/a", "g/b", "h/c"
KEYS = [(A,), (A,), (B,), (C,), (A, B), (B, A), (B, C), (A, B, C)]
PICK = range(1000)
BOTH = [False, True]
KEY = [A, B, C]
NODE = ["one", "one", "two"]
ENDS = ["succeeded", "succeeded", "step", "raised", "raised", "failed", "parked", "conflict", "ignored"]
DELAY = [0, 5_000]
ENDS_OF_LINE = ["back", "back", "front"]


def at_work(machine: "Machine") -> bool:
    return any(machine.counts(one) for one in machine.takings)


def _flavours(chance: Random) -> list[str]:
    return chance.sample(sorted(asks.FLAVOURS), chance.choice([1, 2, 3]))


def _picks(chance: Random) -> list[int]:
    return [chance.choice(PICK) for _ in range(chance.choice([1, 1, 2, 3]))]


class Machine(Beside):
    # Who is meant

    def some(self, names: list[T], pick: int) -> T:
        return names[-1 - pick % min(len(names), 5)]

    def taking(self, pick: int) -> Taking:
        """Mostly one that counts, sometimes one that was succeeded."""
        current = [one for one in self.takings if self.counts(one)]
        others = self.takings or [Taking("nobody", "none", "one", "none")]
        return self.some(current if current and pick % 7 else others, pick)

    def counts(self, taking: Taking) -> bool:
        job = self.model.jobs.get(taking.id)
        return bool(job and job.token == taking.token and not job.over)

    def any_job(self, pick: int, *states: str) -> str:
        fit = [name for name, job in self.model.jobs.items() if not states or job.state in states]
        names: list[str] = [*(self.model.alias if pick % 9 == 0 else ()), *fit]
        return self.some(names or ["nobody"], pick)

    # Submitting

    @act(14, keys=KEYS, priority=[0, 0, 0, 5, -5], attempts=[1, 1, 2, 3], flavours=_flavours, pick=PICK)
    def submit(self, keys: tuple[str, ...], priority: int, attempts: int, flavours: list[str], pick: int) -> None:
        asked: dict[str, Any] = {"max_attempts": attempts}
        for flavour in flavours:
            asked |= asks.FLAVOURS[flavour]
        if asked.get("when_busy") == "skip" and len(keys) > 1 and pick % 3 == 0:
            asked["when_busy"] = f"skip {len(keys)}"
        parent = self.any_job(pick, "running", "parked") if pick % 4 else self.any_job(pick)
        ask = asks.Ask(self.new("j"), keys, priority, self.model.wall, parent, **asked)
        self._submit(ask.job, ask.args, ask.busy, ask.room)

    @act(pick=PICK, keys=KEYS)
    def submit_a_known_id(self, pick: int, keys: tuple[str, ...]) -> None:
        ask = asks.Ask(self.any_job(pick), keys, 0, self.model.wall, "")
        self._submit(ask.job, ask.args, "queue")

    # Runners

    @act(24, lambda machine: machine.model.ready.all(), 1, node=NODE, another=range(12))
    def take(self, node: str, another: int) -> None:
        self._take(node, another == 0)

    @act(4, lambda machine: machine.requests, pick=PICK)
    def take_late(self, pick: int) -> None:
        """A runner's first request comes once more, whatever became of the runner since."""
        node, incarnation, runner, bell, token = self.requests[-1 - pick % len(self.requests)]
        with self.unchanged("a late request"):
            given = self.call("runner_take", node, incarnation, runner, bell, token, TTL)
        entry = self.model.nodes[node].work.get(runner)
        ours = entry and entry[0] == token and self.model.nodes[node].incarnation in (incarnation, "")
        assert (given and given[0]) == (entry[2] if entry and ours else None), f"{given}, while it holds {entry}"

    @act(24, at_work, 1, pick=PICK, outcome=ENDS, delay=DELAY, bound=[None, None, 0, 3],
         chain=BOTH)  # fmt: skip
    def finish(self, pick: int, outcome: str, delay: int, bound: int | None, chain: bool) -> None:
        self._finish(self.taking(pick), outcome, delay, bound, chain)

    @act(6, at_work, 1, pick=PICK, picks=_picks, chain=BOTH)
    def park(self, pick: int, picks: list[int], chain: bool) -> None:
        """On jobs, most of which wait."""
        ids = tuple(self.any_job(one, *(("waiting", "parked") if one % 5 else ())) for one in picks)
        self._finish(self.taking(pick), "parked", 0, None, chain, ids)

    @act(when=lambda machine: machine.takings, pick=PICK)
    def progress(self, pick: int) -> None:
        taking = self.taking(pick)
        job = self.model.jobs.get(taking.id)
        known = job and job.token == taking.token and not self.model.faded(job)
        assert self.call("job_progress", taking.id, taking.token, "1/2") == bool(known)

    # Supervisors

    @act(6, at_work, 1, pick=PICK, how=["lost", "lost", "handed", "stopped", "timed_out"], delay=DELAY, condemned=BOTH)
    def lose(self, pick: int, how: str, delay: int, condemned: bool) -> None:
        self._lose(self.taking(pick), how, delay, condemned)

    def _lose(self, one: Taking, how: str, delay: int, condemned: bool) -> None:
        stopped = self._condemn(one) if condemned or how in ("handed", "stopped") else 0
        if how in ("handed", "stopped") and not stopped:
            return  # as a supervisor: only what it has stopped for sure
        if not condemned or delay:
            expected_state = self.model.lost(one.id, one.token, how, delay)
            assert self.call("job_lose", one.id, one.token, how, '"gone"', delay, then="") == expected_state

    def _condemn(self, one: Taking) -> int:
        stopped = self.model.condemn(self.model.nodes[one.node], one.runner, one.token, one.id)
        assert self.call("runner_condemn", one.node, one.runner, one.token, one.id) == stopped
        return stopped

    @act(3, at_work, picks=_picks)
    def renew(self, picks: list[int]) -> None:
        self._renew([self.taking(pick) for pick in picks])

    def _renew(self, those: list[Taking]) -> None:
        pairs, expected = [], []
        for one in those:
            pairs += [one.id, one.token]
            expected.append(self.model.renew(one.id, one.token, TTL))
        assert self.call("lease_renew", TTL, *pairs) == expected

    @act(3, lambda machine: machine.takings, pick=PICK)
    def drop_work(self, pick: int) -> None:
        one = self.taking(pick) if pick % 2 else self.some(self.takings, pick)
        expected = self.model.drop(self.model.nodes[one.node], one.runner, one.token)
        assert self.call("work_drop", one.node, one.runner, one.token, then=0) == expected

    @act(2, steady=BOTH)
    def sweep(self, steady: bool) -> None:
        self._sweep(STEADY if steady else 2_000)

    @act(4, part="time", ms=[1, 1_000, 6_000, 31_000, 61_000, 61_000, 130_000, 610_000, 3_700_000],
         beaten=range(5), swept=range(2))  # fmt: skip
    def time(self, ms: int, beaten: int, swept: int) -> None:
        self.pass_time(ms)
        if beaten:
            self.beat_all()
        if swept:
            self._sweep()

    @act(2, part="time", ms=[-3_600_000, -3_600_000, -1_000, 3_600_000])
    def set_the_servers_clock(self, ms: int) -> None:
        self.pass_time(ms)

    # Operators

    @act(4, part="operators", pick=PICK, started=BOTH)
    def cancel(self, pick: int, started: bool) -> None:
        self._cancel(self.any_job(pick, *(("running", "held", "parked", "retrying") if started else ())))

    def idle(self) -> bool:
        return any(job.state in ("retrying", "held") or job.over for job in self.model.jobs.values())

    @act(5, idle, 1, part="operators", pick=PICK, ended=BOTH, to=ENDS_OF_LINE)
    def retry(self, pick: int, ended: bool, to: str) -> None:
        states = ("held", "retrying", "failed", "cancelled", "rolled_back", "double_fault", "expired") if ended else ()
        self._retry(self.any_job(pick, *states), to)

    def _retry(self, name: str, to: str) -> None:
        assert self.call("job_retry", name, ACT, to) == self.model.retry(name, to)

    @act(3, part="operators", pick=PICK, priority=[None, None, 5, 0, -5], to=ENDS_OF_LINE, late=range(4))
    def move(self, pick: int, priority: int | None, to: str, late: int) -> None:
        """`late`: who moved it last asks again, whatever came to pass since; the answer may have been lost."""
        name = self.any_job(pick, *(("waiting", "scheduled") if pick % 4 else ()))
        before = self.model.job(name)
        asked = (before and not late and before.move) or self.new("m")
        expected = self.model.move(name, priority, to, asked)
        answer = self.call("job_move", name, "" if priority is None else priority, to, ACT, asked)
        assert answer == list(expected)

    @act(part="operators", key=KEY, named=BOTH, pick=PICK)
    def release(self, key: str, named: bool, pick: int) -> None:
        first = next((job.id for job in self.model.line(key)), "")
        self._release(key, (first if pick % 3 else self.any_job(pick)) if named or self.again else "")

    def _release(self, key: str, holder: str) -> None:
        expected = self.model.release(key, holder)
        assert self.call("lane_release", key, ACT, holder, then="" if holder else ...) == expected

    @act(part="operators", key=KEY, until=["", "", "+5000", 5_000, -5_000])
    def pause(self, key: str, until: str | int) -> None:
        """`until`: a span, or so long from now by the wall clock."""
        span = isinstance(until, str)
        instant = int(until or 0) + (0 if span else self.model.wall)
        expected = self.model.pause(key, self.model.own_clock(instant, span) if until else None)
        assert self.call("lane_pause", key, until if span else instant, ACT, then=0) == expected

    @act(part="operators", group=["g", "h", "h", ""], weight=["1", "3", "0.5"])
    def weigh(self, group: str, weight: str) -> None:
        expected = self.model.ready.weigh(group, float(weight))
        assert float(self.call("weight_set", group, weight, ACT, then=weight)) == expected

    @act(part="operators", key=KEY)
    def resume(self, key: str) -> None:
        assert self.call("lane_resume", key, ACT, then=0) == self.model.resume(key)
