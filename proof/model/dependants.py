"""The plain model: jobs that wait in no line for other jobs and for events, their causes; or parked, for events."""

from collections import defaultdict
from json import dumps
from typing import NamedTuple

from proof.model.lanes import Lanes
from proof.model.record import Job, Place

EVENT = "\1"
MOST = 100


class Wait(NamedTuple):
    """What a job asks for that parks for an event: where it goes on, and where if nobody sets that in `timeout` ms."""

    event: str
    timeout: int
    then: Place
    otherwise: Place | None


class Dependants(Lanes):
    """`dependants`: of each cause, by their places as in a line; `held_after`: those that are held since it failed;
    `ended`: outcomes and causes of which not all are told; `events`: value, and until when it is kept; `known_events`:
    the same of names, 0 for those that jobs wait for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dependants: dict[str, dict[str, int]] = defaultdict(dict)
        self.held_after: dict[str, set[str]] = defaultdict(set)
        self.ended: list[tuple[str, str]] = []
        self.events: dict[str, tuple[str, int]] = {}
        self.known_events: dict[str, int] = {}

    def lapse(self) -> None:
        super().lapse()
        self.events = {name: event for name, event in self.events.items() if event[1] > self.wall}

    def look(self, cause: str) -> tuple[str, str]:
        """Its id, "": nobody knows it; and how it ended."""
        if cause.startswith(EVENT):
            return cause, "set" if cause[1:] in self.events else ""
        job = self.job(cause)
        return ("", "") if not job or job.plain else (job.id, job.state if job.over else "")

    def unknown_cause(self, job: Job) -> str:
        """The first that nobody knows; else the job waits for those that its causes are aliases of."""
        found = [(argument, cause, *self.look(cause)) for argument, cause in job.after]
        unknown = next((cause for _, cause, known, _ in found if not known), "")
        if not unknown:
            job.after = tuple((argument, known) for argument, _, known, _ in found)
        return unknown

    def begins_to_wait(self, job: Job, order: tuple[int, int]) -> bool:
        """It is blocked or held, or has failed at once."""
        causes = dict.fromkeys(cause for _, cause in job.after)
        outcomes = {cause: self.look(cause)[1] for cause in causes}
        job.open = {cause for cause, outcome in outcomes.items() if not outcome or self._is_bad(job, outcome)}
        job.given = {argument for argument, cause in job.after if argument and cause not in job.open}
        if not job.open:
            return False
        job.state, job.order = "blocked", order
        if job.policy == "fail" and any(outcomes[cause] for cause in job.open):
            job.open = set()
            self.leave(job, "failed")
        else:
            for cause in causes:
                if cause in job.open and outcomes[cause]:
                    self._hold(job, cause)
                elif cause in job.open:
                    self._wait_for(job, cause, order[1] + order[0] * 2**44)
        return True

    def _is_bad(self, job: Job, outcome: str) -> bool:
        return outcome not in ("succeeded", "set") and job.policy != "run"

    def _hold(self, job: Job, cause: str) -> None:
        self.held_after[cause].add(job.id)
        job.state = "held"

    def _wait_for(self, job: Job, cause: str, place: int) -> None:
        self.dependants[cause][job.id] = place
        if cause.startswith(EVENT):
            self.known_events[cause[1:]] = 0
        else:
            self.jobs[cause].blocks = True

    def forget_causes(self, job: Job) -> None:
        """It waits no more: it is not blocked any longer, nor held by a cause, nor parked for an event."""
        if job.state not in ("blocked", "held", "parked") or (job.state == "held" and job.taken is not None):
            return
        for cause in [EVENT + job.event] if job.state == "parked" and job.event else job.open:
            self.dependants[cause].pop(job.id, None)
            self.held_after[cause].discard(job.id)
            if cause.startswith(EVENT) and not self.dependants[cause] and cause[1:] not in self.events:
                self.known_events.pop(cause[1:], None)
        job.open, job.event, job.timeout = set(), "", 0

    def leave(self, job: Job, state: str) -> str:
        super().leave(job, state)
        if job.blocks:
            self.note_end(job.id, state)
        return state

    def look_again(self, job: Job) -> None:
        super().look_again(job)
        self.forget_causes(job)

    def note_end(self, cause: str, outcome: str) -> None:
        if self.dependants[cause]:
            self.ended.append((outcome, cause))

    def tell_dependants(self) -> None:
        """Of all that have ended; the courses are too short for a second portion."""
        tell_after, self.tell_after = self.tell_after, 0
        while self.ended:
            outcome, cause = self.ended[0]
            waiting = self.dependants[cause]
            if not waiting:
                del self.ended[0]
                continue
            name = min(waiting, key=lambda one: (waiting[one], one))
            del waiting[name]
            if job := self.jobs.get(name):
                self._tell(job, cause, outcome)
        self.tell_after = tell_after

    def _tell(self, job: Job, cause: str, outcome: str) -> None:
        if job.state == "parked":
            self._wake(job, cause)
        elif cause in job.open and self._is_bad(job, outcome):
            if job.policy == "hold":
                self._hold(job, cause)
            else:
                self.leave(job, "failed")
        elif cause in job.open:
            job.open.remove(cause)
            self.held_after[cause].discard(job.id)
            job.given |= {argument for argument, of in job.after if argument and of == cause}
            if not job.open:
                self.goes_on(job)

    def goes_on(self, job: Job) -> None:
        """Nothing is left for it to wait for, but its own time."""
        if job.not_before > (self.now if job.span else self.wall):
            job.state, job.due = "scheduled", job.not_before
        else:
            self.enter(job, job.order)

    def revived(self, job: Job) -> None:
        """Those that it holds wait for it again."""
        if held := self.held_after.pop(job.id, None):
            self.dependants[job.id] |= dict.fromkeys(held, 0)
            job.blocks = True

    # Events

    def set_event(self, name: str, value: str, keep: int) -> tuple[str, str, int]:
        if name in self.events:
            held = self.events[name][0]
            return "known" if held == value else "other", held, 0
        self.events[name] = value, self.wall + keep
        self.known_events[name] = self.wall + keep
        waiting = len(self.dependants[EVENT + name])
        self.note_end(EVENT + name, "set")
        return "set", value, waiting

    def await_event(self, job: Job, wait: Wait) -> str:
        if wait.event in self.events:
            return self._replace_step(job, wait.then)
        self.let_go(job)  # type: ignore[attr-defined]
        job.event, job.timeout, job.then, job.otherwise = (
            wait.event, self.now + wait.timeout, wait.then, wait.otherwise,
        )  # fmt: skip
        job.state = "parked"
        self.sequence += 1
        self._wait_for(job, EVENT + wait.event, self.sequence)
        return "parked"

    def _replace_step(self, job: Job, place: Place) -> str:
        """Another step is to be taken in place of the one at work, which is no new attempt."""
        self.let_go(job)  # type: ignore[attr-defined]
        job.attempt -= 1
        job.home = job.home or job.place
        job.place = place
        self.know(place.kind)
        self.put_back(job)
        return "ready"

    def _wake(self, job: Job, cause: str) -> None:
        if EVENT + job.event == cause and job.then:
            self._unpark(job)
            self._goes_on_with(job, job.then)

    def _unpark(self, job: Job) -> None:
        self.forget_causes(job)
        job.state = "woken"

    def _goes_on_with(self, job: Job, place: Place) -> None:
        if job.stop or job.phase == "rollback":
            self.conclude(job, "replaced", 0, None)  # type: ignore[attr-defined]
        else:
            self._replace_step(job, place)

    def time_out_waits(self) -> None:
        """Nobody has set an event in time."""
        late = [(job.timeout, job.id) for job in self.jobs.values() if job.event and job.timeout <= self.now]
        for _, name in sorted(late):
            job = self.jobs[name]
            self._unpark(job)
            if job.otherwise:
                self._goes_on_with(job, job.otherwise)
            else:
                self.conclude(job, "failed", 0, None)  # type: ignore[attr-defined]
        self.known_events = {name: till for name, till in self.known_events.items() if not 0 < till <= self.wall}


def detail_of(wait: Wait) -> tuple[str, tuple[str, str, int]]:
    """The detail of an outcome, and what follows."""
    other = wait.otherwise
    ways = f"{other.limit}\n{other.task}\n{other.kind}\0[]" if other else ""
    detail = dumps({"event": wait.event, "timeout": wait.timeout, "steps": "[]", "else": ways})
    return detail, (wait.then.kind, wait.then.task, wait.then.limit)
