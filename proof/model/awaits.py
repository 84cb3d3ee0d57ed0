"""The plain model: code that waits for jobs and locks, and what becomes of rings."""

from proof.model import rings
from proof.model.attempts import Attempts
from proof.model.record import Job


class Awaits(Attempts):
    def nest(self, job: Job, holders: list[tuple[str, str]]) -> bool:
        """A waiter whose code holds these. False: it would wait for itself, and nothing is left of it."""
        job.nested = bool(holders)
        self.wait_for(job.id, holders)
        return not holders or self.stays(job)

    def stays(self, job: Job) -> bool:
        if not rings.ring(self, job.id):
            return True
        self.leave(job, "failed")
        del self.jobs[job.id]
        return False

    def wait_for(self, other: str, holders: list[tuple[str, str]]) -> None:
        for name, token in holders:
            holder = self.jobs.get(name)
            if holder and holder.token == token:
                holder.awaits = (token, other) if other else ("", "")

    def await_job(self, name: str, holders: list[tuple[str, str]]) -> bool:
        """False: it would wait for itself, and does not."""
        self.wait_for(self.alias.get(name, name), holders)
        stuck = any(rings.ring(self, holder) for holder, _ in holders if holder in self.jobs)
        if stuck:
            self.wait_for("", holders)
        return not stuck

    def end_rings(self) -> None:
        """The youngest of those that are parked on a ring loses its attempt."""
        for name in sorted(job.id for job in self.jobs.values() if job.state == "parked"):
            parked = [self.jobs[one] for one in rings.ring(self, name) if self.jobs[one].state == "parked"]
            if parked:
                youngest = max(parked, key=lambda job: job.fence)
                self.look_again(youngest)
                self.conclude(youngest, "failed", 0, None)

    # Sub-results

    def child_ended(self, parent: str) -> int:
        job = self.jobs.get(parent)
        if not job or job.state != "parked" or job.event:
            return 0
        self.looks[parent] = 0
        return 1

    def parked(self, pause: int) -> list[tuple[str, str, int]]:
        """(id, last token, what) of those to be looked at now."""
        found = []
        for _, name in sorted((at, name) for name, at in self.looks.items() if at <= self.now):
            job = self.jobs.get(name)
            if job and job.stale:
                job.stale = False
                found.append((name, "", 2))
            if job and job.state == "parked":
                late = 0 < job.till <= self.now
                self.looks[name] = min(self.now + pause, job.till) if job.till > self.now else self.now + pause
                found.append((name, job.last, int(late)))
            else:
                del self.looks[name]
                if job and job.handles:
                    job.handles = ""
                    found.append((name, "", 2))
        return found

    def unpark(self, name: str, last: str, outcome: str, delay: int) -> str:
        job = self.jobs.get(name)
        if not job or job.state != "parked" or job.last != last or job.event:
            return ""
        self.look_again(job)
        job.handles = ""
        return self.conclude(job, outcome, delay, None)
