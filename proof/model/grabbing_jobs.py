"""Grabs by jobs, beside those by processes: submits that win or lose, and jobs that are taken, end and are retried."""

from dataclasses import replace
from random import Random
from typing import Any

from proof.model import asks
from proof.model.beside import ACT, Taking
from proof.model.grabbing import INSTANCES, PICK, Grabbing, lane_of
from proof.model.instances import ANY, Instance, told_alike
from proof.model.record import Job
from proof.model.steps import act

AGES = 3_000_000_000_000
KEEP = 2_000_000  # ms: longer than the records of jobs that succeeded
FLAVOURS = ["bare", "bare", "undo", "hold", "tell", "later"]
OUTCOMES = ["succeeded", "succeeded", "failed", "raised"]


class GrabbingJobs(Grabbing):
    def __init__(self) -> None:
        super().__init__()
        self.of_jobs: dict[str, tuple[str, str]] = {}

    def begin(self, chance: Random) -> None:
        super().begin(chance)
        for name in ("one", "two"):
            self._beat(name, "first", False)

    def look_at_all(self) -> None:
        """What became of jobs stands in their instances."""
        for lane, one in self.instances.items():
            job = self.model.jobs.get(one.job)
            if (
                job
                and one.state == "running"
                and not one.token
                and lane_of(*self.of_jobs.get(job.id, ("", ""))) == lane
            ):
                self._follow(one, job)
        super().look_at_all()

    def _follow(self, one: Instance, job: Job) -> None:
        if job.attempt > one.taken:
            one.taken = job.attempt
            pid = int(job.runner) if job.runner.isdigit() else 0
            one.fence, one.started = str(job.fence), str(self.model.wall)
            one.about = f'{{"identifier": "{job.id}", "host": "{job.node}", "pid": {pid}, "node": "{job.node}"}}'
        if job.over:
            well = job.state == "succeeded"
            one.state, one.value = ("complete", '"detail"') if well else ("failed", ANY)
            one.ended, one.till = str(self.model.wall), self.model.wall + KEEP
            one.failures += not well

    def _new(self, job_id: str, before: Instance, state: str) -> Instance:
        about = f'{{"identifier": "{job_id}", "host": "", "pid": 0, "node": ""}}'
        till, job = self.model.wall + KEEP + AGES, self.model.jobs.get(job_id)
        taken = job.attempt if job else 0
        return Instance(
            "running", job_id, "", "", before.attempt + 1, about, till=till, taken=taken, failures=before.failures,
            earlier=before.earlier_of(state),
        )  # fmt: skip

    @act(8, names=INSTANCES[:2], flavour=FLAVOURS, known=range(4), pick=PICK)
    def submit(self, names: tuple[str, str], flavour: str, known: int, pick: int) -> None:
        """`known` 0: an id that was submitted before."""
        job_id = list(self.of_jobs)[-1 - pick % min(len(self.of_jobs), 3)] if known == 0 and self.of_jobs else ""
        if job_id:
            names, flavour = self.of_jobs[job_id], "bare"
        ask = asks.Ask(
            job_id or self.new("j"), (lane_of(*names),), 0, self.model.wall, "", **asks.FLAVOURS[flavour],
            max_attempts=2, key=names[0], grab={"instance": names[1], "keep_instance": KEEP / 1000},
        )  # fmt: skip
        one, state = self.instances.read(lane_of(*names))
        again, self.again = self.again, False
        if ask.name not in self.model.jobs and state in ("running", "complete"):
            outcome = "duplicate" if one.job == ask.name else "lost"
            expected: list[Any] = [outcome, -1, one.job, one.fence]
        else:
            new = ask.name not in self.model.jobs
            expected = list(self.model.submit(ask.job, "queue"))
            if new:
                one = self.instances[lane_of(*names)] = self._new(ask.name, one, state)
                state = "running"
                self.of_jobs[ask.name] = names
        for _ in range(2 if again else 1):
            answer = self.call("job_submit", *ask.args)
            assert answer[:4] == expected, f"should be {expected}, is {answer}"
            assert told_alike(answer[4], one.told(state)), f"should be {one.told(state)}, is {answer[4]}"
            assert answer[5] == one.job
            expected = list(self.model.submit(replace(ask.job), "queue")) if ask.name in self.model.jobs else expected

    @act(8, node=["one", "one", "two"])
    def take(self, node: str) -> None:
        self._take(node, False)

    @act(8, pick=PICK, outcome=OUTCOMES)
    def finish(self, pick: int, outcome: str) -> None:
        takings = self.takings or [Taking("nobody", "none", "one", "none")]
        self._finish(takings[-1 - pick % min(len(takings), 3)], outcome, 0, None, False)

    def _some_job(self, pick: int) -> str:
        names = list(self.of_jobs) or ["no job"]
        return names[-1 - pick % min(len(names), 3)]

    @act(3, pick=PICK)
    def retry(self, pick: int) -> None:
        name = self._some_job(pick)
        job = self.model.jobs.get(name)
        if job and job.over and job.state != "succeeded":
            names = self.of_jobs[name]
            one, state = self.instances.read(lane_of(*names))
            if state in ("running", "complete"):
                assert self.call("job_retry", name, ACT, "back") == job.state
                return
            self.instances[lane_of(*names)] = self._new(name, one, state)
        assert self.call("job_retry", name, ACT, "back") == self.model.retry(name, "back")

    @act(2, pick=PICK)
    def cancel_job(self, pick: int) -> None:
        self._cancel(self._some_job(pick))

    @act(2)
    def sweep(self) -> None:
        self._sweep()
