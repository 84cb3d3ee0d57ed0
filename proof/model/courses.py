"""Steps in a row that chance seldom brings together, each followed by the look at all that holds."""

from proof.model.beside import Taking
from proof.model.flowing import Flowing
from proof.model.machine import BOTH, ENDS_OF_LINE, KEY, PICK, Machine, at_work
from proof.model.record import Job
from proof.model.steps import act

PAST_LIFETIME, PAST_LEASE, PAST_START = 610_000, 61_000, 31_000


def ready_of_several(machine: Machine) -> list[Job]:
    """Ready, and never taken, in more than one lane."""
    return [job for job in machine.model.jobs.values() if job.state == "ready" and not job.attempt and job.keys[1:]]


def free_lanes(machine: Machine) -> list[str]:
    return [key for key in KEY if not machine.model.busy((key,))]


class Courses(Flowing):
    def _pass(self, ms: int) -> None:
        """Time in which workers live and nobody sweeps."""
        self.pass_time(ms)
        self.beat_all()
        self.check()

    def _lose_and_take(self, one: Taking) -> Taking:
        """The next taking, mostly of the same job; the loss is told once more, late."""
        self._lose(one, "lost", 0, False)
        self.check()
        self.take(one.node, 1)
        self.check()
        self._lose(one, "lost", 0, False)
        self.check()
        return self.takings[-1] if self.takings else one

    @act(2, at_work, part="time", pick=PICK, lost=["", "taken again", "alive"], cancelled=BOTH)
    def outlive(self, pick: int, lost: str, cancelled: bool) -> None:
        """It runs, was lost and runs again, or was not lost after all; its lifetime ends while it is renewed."""
        one = self.taking(pick)
        if lost == "taken again":
            one = self._lose_and_take(one)
        elif lost:
            self._lose(one, "lost", 0, False)
            self.check()
            self._renew([one])
            self.check()
        if cancelled:
            self._cancel(one.id)
            self.check()
        self._pass(PAST_LIFETIME)
        self._renew([one])
        self.check()
        self._sweep()

    @act(2, at_work, part="time")
    def sweep_after_a_silence(self) -> None:
        """Nobody could renew: nobody is lost yet, neither at once nor a little later."""
        self._sweep(2_000)
        self._pass(PAST_LEASE)
        self._sweep(2_000)
        self.pass_time(1_900)
        self._sweep()

    @act(2, at_work, part="time", pick=PICK)
    def outlive_a_clock_that_went_back(self, pick: int) -> None:
        """Redis keeps its lock for an hour more. Its lease ends all the same, and another is given the lane."""
        one = self.taking(pick)
        self._sweep()
        self._pass(-3_600_000)
        self._pass(PAST_LEASE)
        self._sweep()
        self.check()
        self.take(one.node, 1)

    def _start(self, pick: int, attempts: int, flavour: str) -> None:
        """The last taking is one of a new job, in a lane that was free."""
        self.submit((self.some(free_lanes(self) or KEY, pick),), 5, attempts, [flavour], 0)
        self.check()
        self.take("one", 1)
        self.check()

    @act(when=free_lanes, pick=PICK, flavour=["conflicts", "fewer conflicts"])
    def conflict_at_the_bound(self, pick: int, flavour: str) -> None:
        self._start(pick, 1, flavour)
        self.finish(0, "conflict", 5_000, None, False)

    @act(2, free_lanes, part="time", pick=PICK)
    def lose_what_had_to_start_in_time(self, pick: int) -> None:
        """It did start in time, once; taken again later, it still did, and the loss is none of its attempts."""
        self._start(pick, 2, "hurried")
        self.lose(0, "lost", 0, False)
        self._pass(PAST_START)
        self.take("one", 1)
        self.check()
        self.finish(0, "raised", 5_000, None, False)

    @act(2, free_lanes, part="time", pick=PICK, flavour=["undo", "undo in steps"])
    def park_a_rollback_that_began_late(self, pick: int, flavour: str) -> None:
        """The lifetime of the job is over, that of its rollback counts from its claim; then that one is over, too."""
        self._start(pick, 1, flavour)
        self.finish(0, "failed", 0, None, False)
        self._pass(PAST_LIFETIME)
        self.take("one", 1)
        self.check()
        for ms in (0, PAST_LIFETIME):
            self._sweep()
            self.check()
            self.finish(0, "parked", 0, None, False)
            self._pass(ms)
        self._sweep()

    @act(2, at_work, part="operators", pick=PICK, to=ENDS_OF_LINE)
    def stop_what_was_released_and_is_wanted_again(self, pick: int, to: str) -> None:
        one = self.taking(pick)
        job = self.model.jobs.get(one.id)
        if job and job.keys and job.token == one.token and not job.over:
            self._release(job.keys[0], job.id)
            self.check()
            self._retry(job.id, to)
            self.check()
        self._condemn(one)

    @act(3, ready_of_several, part="operators", pick=PICK, last=BOTH)
    def call_back_who_was_overtaken(self, pick: int, last: bool) -> None:
        """It is ready, pinned in front of a greater priority; then one of its lanes is paused, which frees others."""
        found = ready_of_several(self)
        if found:
            first, *_, other = self.some(found, pick).keys[:: -1 if last else 1]
            self.submit((other,), 5, 1, ["bare"], 0)
            self.check()
            self.pause(first, "")
