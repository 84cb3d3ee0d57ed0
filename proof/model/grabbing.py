"""Grabs on a real Redis beside a plain model: processes that win, end, lapse, are replaced, and ask twice."""

from dataclasses import dataclass
from json import loads
from random import Random
from typing import Any

from proof.model import asks
from proof.model.beside import ACT, TTL, Beside
from proof.model.instances import Instances, told_alike
from proof.model.steps import act

KEEP = 1_000_000
INSTANCES = [("k", "1"), ("k", "2"), ("k/1", "")]
PICK = range(1000)
ATTEMPTS = [1, 2, 2, 9]


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
        self.instances = Instances(self.model)
        self.asked: list[Part] = []
        self.over: set[str] = set()  # jobs that were seen to be over

    def begin(self, chance: Random) -> None:
        super().begin(chance)
        self.asked.append(Part("k", "1", "nobody", "no token"))

    def look_at_all(self) -> None:
        super().look_at_all()
        self.over.update(job.id for job in self.model.jobs.values() if job.over)
        dump, wall = self.dump(), self.model.wall
        there = {lane: one for lane, one in self.instances.items() if one.till > wall}
        held = {lane: (one["state"], one["token"], one["attempt"]) for lane, one in dump.under("grab").items()}
        assert held == {lane: (one.state, one.token, str(one.attempt)) for lane, one in there.items()}
        listed = {(key, name): till for key, all_ in dump.under("grabs").items() for name, till in all_}
        keys = dump.scores("grabs")
        for lane, one in self.instances.items():
            key, name = lane.split("\x1f")[1:]
            assert one.till <= wall or one.till <= min(listed[key, name], keys[key]), (
                "it is listed as long as it is kept"
            )

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
        lane, about = lane_of(part.key, part.instance), f'"{part.job}"'
        _, asked = asks.lock(part.job, lane, TTL)
        asked.token = part.token
        expected = self.instances.take(lane, asked, KEEP, attempts, about)
        args = (lane, part.job, part.token, TTL, asks.LIFETIME, KEEP, attempts, about)
        answer = self.call("grab_take", *args)
        assert told_alike(answer, expected), f"should be {expected}, is {answer}"

    @act(5, pick=PICK, state=["complete", "failed"], value=['"done"', "null"])
    def end(self, pick: int, state: str, value: str) -> None:
        part = self.part(pick)
        lane = lane_of(part.key, part.instance)
        expected = self.instances.end(lane, part.job, part.token, state, KEEP, value)
        args = (part.job, part.token, state, KEEP, value)
        assert self.call("grab_end", lane, *args) == expected

    @act(2, names=INSTANCES, named=range(4))
    def release(self, names: tuple[str, str], named: int) -> None:
        """`named`: 0 = whoever has it, 1 = another than that."""
        one, state = self.instances.read(lane_of(*names))
        attempt = "" if not named else one.attempt + (named == 1)
        of_job = state == "running" and not one.token
        expected = self.instances.release(lane_of(*names), str(attempt))
        again, self.again = self.again, self.again and bool(named) and not of_job
        answer = self.call("grab_release", lane_of(*names), attempt, ACT, then="")
        assert (answer and loads(answer)) == (expected and loads(expected))
        self.again = again

    @act(2, names=INSTANCES)
    def look(self, names: tuple[str, str]) -> None:
        one, state = self.instances.read(lane_of(*names))
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
