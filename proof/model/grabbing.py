"""Grabs on a real Redis beside a plain model: processes that win, end, lapse, are replaced, and ask twice."""

from dataclasses import dataclass
from json import dumps, loads
from random import Random
from typing import Any

from proof.model import asks
from proof.model.beside import ACT, TTL, Beside
from proof.model.steps import act

KEEP = 1_000_000
INSTANCES = [("k", "1"), ("k", "2"), ("k/1", "")]
PICK = range(1000)
ATTEMPTS = [1, 2, 2, 9]


@dataclass
class Instance:
    """As the record has it; `till`: when it is forgotten, by the server's clock."""

    state: str = ""
    job: str = ""
    token: str = ""
    fence: str = ""
    attempt: int = 0
    about: str = ""
    started: str = ""
    ended: str = ""
    value: str = ""
    till: int = 0
    taken: int = 0  # of a job: its takings so far
    failures: int = 0
    earlier: tuple[str, ...] = ()

    def told(self, state: str) -> list[str]:
        attempt = str(self.attempt) if self.attempt else ""
        return [state, self.fence, attempt, self.about, self.started, self.ended, self.value, "\n".join(self.earlier)]

    def earlier_of(self, state: str) -> tuple[str, ...]:
        """Once somebody else has won it."""
        if not self.about:
            return ()
        names = ("state", "fence", "attempt", "about", "started", "ended", "value")
        return (dumps(dict(zip(names, self.told(state)[:7], strict=True))), *self.earlier)[:10]


ANY = '"any"'


def parsed(told: list[str]) -> list[Any]:
    """The winner is told as JSON, and so is the error of a job that an operator ended, which may be ANY."""
    past = [{name: value for name, value in loads(line).items() if value} for line in told[7].splitlines()]
    for one in past:
        one["about"] = loads(one["about"])
    return [*told[:3], loads(told[3] or "null"), *told[4:6], loads(told[6] or "null"), past]


def told_alike(told: list[str], expected: list[str]) -> bool:
    found, wanted = parsed(told), parsed(expected)
    if expected[6] == ANY:
        found[6] = wanted[6]
    for ours, theirs in zip(found[7], wanted[7], strict=False):
        if theirs.get("value") == ANY:
            ours["value"] = ANY
    return found == wanted


@dataclass(frozen=True)
class Part:
    """One process's part: what it asked for."""

    key: str
    instance: str
    job: str
    token: str


def lane_of(key: str, instance: str) -> str:
    return f"grab\x1f{key}\x1f{instance}"


class Grabbing(Beside):
    parts = ("time",)

    def __init__(self) -> None:
        super().__init__()
        self.instances: dict[tuple[str, str], Instance] = {}
        self.asked: list[Part] = []
        self.over: set[str] = set()  # jobs that were seen to be over

    def begin(self, chance: Random) -> None:
        super().begin(chance)
        self.asked.append(Part("k", "1", "nobody", "no token"))

    def look_at_all(self) -> None:
        super().look_at_all()
        self.over.update(job.id for job in self.model.jobs.values() if job.over)
        dump, wall = self.dump(), self.model.wall
        there = {lane_of(*names): one for names, one in self.instances.items() if one.till > wall}
        held = {lane: (one["state"], one["token"], one["attempt"]) for lane, one in dump.under("grab").items()}
        assert held == {lane: (one.state, one.token, str(one.attempt)) for lane, one in there.items()}
        listed = {(key, name): till for key, all_ in dump.under("grabs").items() for name, till in all_}
        keys = dump.scores("grabs")
        for (key, name), one in self.instances.items():
            assert one.till <= wall or one.till <= min(listed[key, name], keys[key]), (
                "it is listed as long as it is kept"
            )

    def read(self, key: str, instance: str) -> tuple[Instance, str]:
        """The record, and how the instance is."""
        one = self.instances.get((key, instance))
        if one is None or one.till <= self.model.wall:
            one = self.instances[key, instance] = Instance()
        if one.state == "running" and one.token:
            self.model.end_lapsed(lane_of(key, instance))
        job = self.model.jobs.get(one.job)
        holds = job and (not one.token or (job.state == "running" and job.token == one.token))
        return one, one.state if one.state != "running" or holds else "abandoned"

    def part(self, pick: int) -> Part:
        """One that asked lately, mostly the last."""
        return self.asked[-1 - pick % min(len(self.asked), 5 if pick % 3 == 0 else 2)]

    @act(6, names=INSTANCES, attempts=ATTEMPTS)
    def grab(self, names: tuple[str, str], attempts: int) -> None:
        part = Part(*names, f"grab:{self.new('g')}", self.new_token())
        self.asked.append(part)
        self._grab(part, attempts)

    @act(2, pick=PICK, attempts=ATTEMPTS)
    def grab_late(self, pick: int, attempts: int) -> None:
        """A request comes once more, while Redis knows its lease, or never knew it: a process asks for 2 s at most."""
        part = self.part(pick)
        if part.job in self.model.jobs or part.job not in self.over:
            self._grab(part, attempts)

    def _grab(self, part: Part, attempts: int) -> None:
        one, state = self.read(part.key, part.instance)
        lane, about = lane_of(part.key, part.instance), f'"{part.job}"'
        expected = one.told(state)
        if state == "running" and one.token == part.token:
            expected[0] = "won"
        elif state not in ("running", "complete") and not (state == "failed" and one.failures >= attempts):
            expected = self._won(part, lane, about, one, state)
        args = (lane, part.job, part.token, TTL, asks.LIFETIME, KEEP, attempts, about)
        answer = self.call("grab_take", *args)
        assert told_alike(answer, expected), f"should be {expected}, is {answer}"

    def _won(self, part: Part, lane: str, about: str, one: Instance, state: str) -> list[str]:
        self.model.end_lapsed(lane)
        if self.model.busy((lane,)) or part.job in self.model.jobs:
            return Instance().told("busy")
        _, job = asks.lock(part.job, lane, TTL)
        job.token = part.token
        fence = self.model.submit(job, "skip").fence
        wall = self.model.wall
        self.instances[part.key, part.instance] = Instance(
            "running", part.job, part.token, fence, one.attempt + 1, about, str(wall), till=wall + KEEP + asks.LIFETIME,
            failures=one.failures, earlier=one.earlier_of(state),
        )  # fmt: skip
        return self.instances[part.key, part.instance].told("won")

    @act(5, pick=PICK, state=["complete", "failed"], value=['"done"', "null"])
    def end(self, pick: int, state: str, value: str) -> None:
        part = self.part(pick)
        one = self.instances.get((part.key, part.instance), Instance())
        job = self.model.jobs.get(part.job)
        if one.till <= self.model.wall or one.token != part.token:
            expected = "lost"
        elif one.state == state:
            expected = "ended"
        elif one.state != "running" or not job or job.over or not self.model.is_locked(job):
            expected = "lost"
        else:
            self.model.leave(job, "succeeded")
            del self.model.jobs[part.job]
            one.state, one.value, one.ended = state, value, str(self.model.wall)
            one.till, expected = self.model.wall + KEEP, "ended"
            one.failures += state == "failed"
        args = (part.job, part.token, state, KEEP, value)
        assert self.call("grab_end", lane_of(part.key, part.instance), *args) == expected

    @act(2, names=INSTANCES, named=range(4))
    def release(self, names: tuple[str, str], named: int) -> None:
        """`named`: 0 = whoever has it, 1 = another than that."""
        one, state = self.read(*names)
        attempt = "" if not named else int(one.attempt or 0) + (named == 1)
        expected = one.about if state in ("running", "failed") and named != 1 else ""
        of_job = state == "running" and not one.token
        if expected and of_job:
            self.model.cancel(one.job)
        elif expected:
            if state == "running":
                self.model.leave(self.model.jobs[one.job], "succeeded")
                del self.model.jobs[one.job]
            one.state, one.value, one.ended, one.failures = "abandoned", ANY, str(self.model.wall), 0
        again, self.again = self.again, self.again and bool(named) and not of_job
        answer = self.call("grab_release", lane_of(*names), attempt, ACT, then="")
        assert (answer and loads(answer)) == (expected and loads(expected))
        self.again = again

    @act(2, names=INSTANCES)
    def look(self, names: tuple[str, str]) -> None:
        one, state = self.read(*names)
        answer = self.call("grab_look", lane_of(*names))
        assert told_alike(answer, one.told(state)), f"should be {one.told(state)}, is {answer}"

    @act(3, pick=PICK)
    def renew(self, pick: int) -> None:
        part = self.part(pick)
        expected: list[Any] = [self.model.renew(part.job, part.token, TTL)]
        assert self.call("lease_renew", TTL, part.job, part.token) == expected

    @act(1, pick=PICK)
    def give_up_the_lane(self, pick: int) -> None:
        """As a process that got an error, and is not sure."""
        part = self.part(pick)
        job = self.model.jobs.get(part.job)
        ours = job is not None and job.token == part.token
        if job and ours and not job.over:
            self.model.leave(job, "succeeded")
        expected = "released" if job and ours and job.state == "succeeded" else "lost"
        assert self.call("lock_release", part.job, part.token) == expected

    @act(1, pick=PICK)
    def cancel(self, pick: int) -> None:
        self._cancel(self.part(pick).job)

    @act(3, part="time", ms=[1, 1_000, 31_000, 61_000, 61_000, 130_000, 1_100_000, 1_700_000])
    def time(self, ms: int) -> None:
        self.pass_time(ms)
        self.beat_all()
