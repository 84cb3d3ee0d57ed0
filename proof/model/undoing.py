"""The plain model: an attempt is let go, parks, or belongs to a rollback."""

from proof.model.dependants import Dependants
from proof.model.record import Job


class Undoing(Dependants):
    def let_go(self, job: Job) -> None:
        """Nobody acts for it; its lane is kept."""
        self.unlock(job)
        self.correct(job)
        self.give_back(job)
        job.token, job.last, job.condemned = "", job.token or job.last, ""

    def park(self, job: Job) -> str:
        """Sub-results of an attempt before, which nobody has stopped yet, are not forgotten."""
        assert job.place
        job.till = job.started + job.place.limit if job.place.limit else 0
        self.let_go(job)
        job.stale = job.stale or bool(job.handles)
        job.handles, job.state = "handles", "parked"
        self.looks[job.id] = self.now
        return "parked"

    def undo(self, job: Job, number: int) -> None:
        """A step of its rollback is to be taken, within a lifetime of its own."""
        job.stop, job.back, job.place, job.given_up = "", number, job.undo[number], self.now
        self.know(job.place.kind)
        self.put_back(job)

    def undo_next(self, job: Job) -> str:
        self.let_go(job)
        self.undo(job, job.back + 1)
        return "ready"

    def undone(self, job: Job, how: str) -> None:
        job.phase, job.rollback, job.place, job.back = "undone", how, job.own, 0
