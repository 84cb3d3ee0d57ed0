"""The plain model: grabs, the instances of a key on which one process among many works."""

from dataclasses import dataclass
from json import dumps, loads
from typing import Any

from proof.model.operators import Model
from proof.model.record import Job

ANY = '"any"'


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


def _parsed(told: list[str]) -> list[Any]:
    """The winner is told as JSON, and so is the error of a job that an operator ended, which may be ANY."""
    past = [{name: value for name, value in loads(line).items() if value} for line in told[7].splitlines()]
    for one in past:
        one["about"] = loads(one["about"])
    return [*told[:3], loads(told[3] or "null"), *told[4:6], loads(told[6] or "null"), past]


def told_alike(told: list[str], expected: list[str]) -> bool:
    found, wanted = _parsed(told), _parsed(expected)
    if expected[6] == ANY:
        found[6] = wanted[6]
    for ours, theirs in zip(found[7], wanted[7], strict=False):
        if theirs.get("value") == ANY:
            ours["value"] = ANY
    return found == wanted


class Instances(dict[str, Instance]):
    """By their lanes. What a process or an operator asks for changes them, and the lanes of this model."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def read(self, lane: str) -> tuple[Instance, str]:
        """The record, and how the instance is."""
        one = self.get(lane)
        if one is None or one.till <= self.model.wall:
            one = self[lane] = Instance()
        if one.state == "running" and one.token:
            self.model.end_lapsed(lane)
        job = self.model.jobs.get(one.job)
        holds = job and (not one.token or (job.state == "running" and job.token == one.token))
        return one, one.state if one.state != "running" or holds else "abandoned"

    def take(self, lane: str, asked: Job, keep: int, attempts: int, about: str) -> list[str]:
        """`asked`: the lock that a winner has."""
        one, state = self.read(lane)
        if state == "running" and one.token == asked.token:
            return one.told("won")
        if state in ("running", "complete") or (state == "failed" and one.failures >= attempts):
            return one.told(state)
        self.model.end_lapsed(lane)
        if self.model.busy((lane,)) or asked.id in self.model.jobs:
            return Instance().told("busy")
        fence = self.model.submit(asked, "skip").fence
        wall = self.model.wall
        self[lane] = Instance(
            "running", asked.id, asked.token, fence, one.attempt + 1, about, str(wall),
            till=wall + keep + asked.lifetime, failures=one.failures, earlier=one.earlier_of(state),
        )  # fmt: skip
        return self[lane].told("won")

    def end(self, lane: str, job_id: str, token: str, state: str, keep: int, value: str) -> str:
        one = self.get(lane, Instance())
        job = self.model.jobs.get(job_id)
        if one.till <= self.model.wall or one.token != token:
            return "lost"
        if one.state == state:
            return "ended"
        if one.state != "running" or not job or job.over or not self.model.is_locked(job):
            return "lost"
        self.model.leave(job, "succeeded")
        del self.model.jobs[job_id]
        one.state, one.value, one.ended = state, value, str(self.model.wall)
        one.till = self.model.wall + keep
        one.failures += state == "failed"
        return "ended"

    def release(self, lane: str, attempt: str) -> str:
        """The winner from which it is taken, as JSON. `attempt`: of the one that is meant, "" = any."""
        one, state = self.read(lane)
        if state not in ("running", "failed") or attempt not in ("", str(one.attempt)):
            return ""
        if state == "running" and not one.token:
            self.model.cancel(one.job)
            return one.about
        if state == "running":
            self.model.leave(self.model.jobs[one.job], "succeeded")
            del self.model.jobs[one.job]
        one.state, one.value, one.ended, one.failures = "abandoned", ANY, str(self.model.wall), 0
        return one.about
