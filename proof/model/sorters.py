"""The plain model: sorters, which hold orders until they are flushed, and then put them in line sorted.

What a sorter holds is not stored: it is the jobs in state `collected` that name it, some of them sealed in a batch.
"""

from collections import defaultdict

from proof.model.awaits import Awaits
from proof.model.record import Job


class Sorters(Awaits):
    """`times`: of each sorter, when the first of those collected came, and when they are due."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[str, tuple[int, int]] = {}
        self.seen: dict[str, dict[str, str]] = defaultdict(dict)

    def collected(self, sorter: str) -> list[Job]:
        return self._holds(sorter, sealed=False)

    def batch(self, sorter: str) -> list[Job]:
        return self._holds(sorter, sealed=True)

    def _holds(self, sorter: str, sealed: bool) -> list[Job]:
        held = (job for job in self.jobs.values() if job.state == "collected" and job.sorter == sorter)
        return sorted((job for job in held if job.sealed == sealed), key=lambda job: (job.sort_key, job.id))

    def flushes(self) -> dict[str, int]:
        """When each sorter is to be looked at; a batch under way goes before all that is due."""
        names = {job.sorter for job in self.jobs.values() if job.state == "collected"}
        return {name: 0 if self.batch(name) else self.times[name][1] for name in names}

    def due_sorters(self) -> list[str]:
        return [name for at, name in sorted((at, name) for name, at in self.flushes().items()) if at <= self.now]

    def add(self, job: Job, idle: int, longest: int, path: str, identity: str) -> str:
        if path and self.seen[job.sorter].get(path) == identity:
            return "seen"
        if job.id in self.jobs or job.id in self.alias:
            known = self.jobs.get(job.id)
            return "collected" if known and known.asked == job.asked else "duplicate"
        first, due = self.times[job.sorter] if self.collected(job.sorter) else (self.now, self.now + 1)
        if due > self.now:
            due = min(self.now + idle, first + longest) if longest else self.now + idle
        self.times[job.sorter] = first, due
        job.count_from(self.now)
        self.jobs[job.id], job.state = job, "collected"
        assert job.place
        self.know(job.place.kind)
        self.counts["created"] += 1
        if path:
            self.seen[job.sorter][path] = identity
        return "collected"

    def flush(self, most: int) -> int:
        """How many sorters are still due."""
        for sorter in self.due_sorters()[:1]:
            if not self.batch(sorter):
                for job in self.collected(sorter):
                    job.sealed = True
            for job in self.batch(sorter)[:most]:
                self._let_go(job)
        return len(self.due_sorters())

    def _let_go(self, job: Job) -> None:
        order = self.next_order(job.priority)
        if job.not_before > (self.now if job.span else self.wall):
            job.state, job.due, job.order = "scheduled", job.not_before, order
        else:
            self.enter(job, order)

    def hasten(self, sorter: str) -> int:
        """An operator has it flushed now."""
        held = len(self.collected(sorter))
        if held:
            first, due = self.times[sorter]
            self.times[sorter] = first, min(due, self.now)
        return held

    def forget_files(self, sorter: str, files: dict[str, str]) -> int:
        seen = self.seen[sorter]
        gone = [path for path, identity in files.items() if seen.get(path) == identity]
        self.seen[sorter] = {path: identity for path, identity in seen.items() if path not in gone}
        return len(gone)
