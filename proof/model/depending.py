"""The machine's steps with causes: jobs wait for others, which end well or badly, are held or run again; and events."""

from random import Random

from proof.model import asks
from proof.model.beside import ACT, Taking
from proof.model.dependants import EVENT, Wait
from proof.model.machine import BOTH, ENDS_OF_LINE, KEYS, PICK, Machine, at_work
from proof.model.record import Place
from proof.model.steps import act
from proof.model.wholes import Whole

EVENTS = ["e", "e", "f"]
PLAIN = ["bare", "bare", "fragile", "hold", "undo", "order", "later", "in a while", "hurried", "tell", "child", "flow"]
POLICIES = ["fail", "fail", "run", "hold", "hold"]
BAD = ("failed", "cancelled", "rolled_back", "double_fault", "expired")
THEN = [Place("shop\ncelery", "shop.other"), Place("shop\nother", "shop.work", 20_000)]
KEPT = 3_600_000


class _Event:
    def __init__(self, name: str) -> None:
        self.cause = EVENT + name


def _picks(chance: Random) -> list[int]:
    return [chance.choice(PICK) for _ in range(chance.choice([1, 1, 2, 3]))]


def waited_for(machine: Machine) -> list[str]:
    return [cause for cause, waiting in machine.model.dependants.items() if waiting]


def causes_at_work(machine: Machine) -> list[Taking]:
    model = machine.model
    return [one for one in machine.takings if machine.counts(one) and model.dependants[one.id]]


def blocked(machine: Machine) -> list[str]:
    return [job.id for job in machine.model.jobs.values() if job.state == "blocked"]


def parked_for_events(machine: Machine) -> list[str]:
    return [job.id for job in machine.model.jobs.values() if job.event]


class Depending(Whole):
    parts = (*Whole.parts, "after")

    @act(10, part="after", keys=KEYS, priority=[0, 0, 5], flavour=PLAIN, picks=_picks, policy=POLICIES, named=BOTH)
    def submit_after(
        self, keys: tuple[str, ...], priority: int, flavour: str, picks: list[int], policy: str, named: bool
    ) -> None:
        causes: list[object] = [self._cause(pick) for pick in picks]
        after = {f"part{number}": cause for number, cause in enumerate(causes)} if named else causes
        asked = {**asks.FLAVOURS[flavour], "after": after, "on_failure_of": policy}
        parent = self.any_job(picks[0], "running", "parked")
        ask = asks.Ask(self.new("j"), keys, priority, self.model.wall, parent, **asked)
        self._submit(ask.job, ask.args, ask.busy, ask.room)

    def _cause(self, pick: int) -> object:
        if pick % 4 == 0:
            return _Event(self.some(EVENTS, pick))
        if pick % 5 == 0:
            return self.any_job(pick, *BAD)
        if pick % 7 == 1 and self.model.alias:
            return self.some([*self.model.alias], pick)
        return self.any_job(pick, *(("waiting", "ready", "running", "blocked", "parked", "held") if pick % 7 else ()))

    @act(2, part="after", name=EVENTS, value=["1", "1", "2"])
    def set_event(self, name: str, value: str) -> None:
        expected = self.model.set_event(name, value, KEPT)
        again = ["other" if expected[0] == "other" else "known", expected[1], 0]
        assert self.call("event_set", name, value, KEPT, ACT, then=again) == list(expected)

    @act(4, at_work, 0, part="after", pick=PICK, event=EVENTS, timeout=[0, 5_000, 60_000], then=THEN,
         otherwise=[None, *THEN], chain=BOTH)  # fmt: skip
    def wait_for_event(
        self, pick: int, event: str, timeout: int, then: Place, otherwise: Place | None, chain: bool
    ) -> None:
        self._finish(self.taking(pick), "awaits", 0, None, chain, wait=Wait(event, timeout, then, otherwise))

    @act(4, waited_for, 0, part="after", pick=PICK)
    def end_a_cause(self, pick: int) -> None:
        """Badly, mostly: jobs that wait for it fail with it, run all the same, or are held."""
        name = self.some(waited_for(self), pick)
        if name.startswith(EVENT):
            self.set_event(name[1:], "1")
        elif name in self.model.jobs and not self.model.jobs[name].over:
            self._cancel(name)

    @act(4, lambda machine: any(machine.model.held_after.values()), 0, part="after", pick=PICK, to=ENDS_OF_LINE,
         cause=BOTH)  # fmt: skip
    def retry_what_is_held(self, pick: int, to: str, cause: bool) -> None:
        """The job itself, or the cause that failed."""
        held = [(name, one) for name, all_ in self.model.held_after.items() for one in sorted(all_)]
        self._retry(self.some(held, pick)[not cause], to)

    @act(5, causes_at_work, 0, part="after", pick=PICK, chain=[True, True, False])
    def end_a_cause_at_work(self, pick: int, chain: bool) -> None:
        """Its runner may take what waited for it."""
        self._finish(self.some(causes_at_work(self), pick), "succeeded", 0, None, chain)

    @act(3, causes_at_work, 0, part="after", pick=PICK, another=PICK)
    def park_on_a_dependant(self, pick: int, another: int) -> None:
        """It would wait for itself."""
        taking = self.some(causes_at_work(self), pick)
        waiting = self.some(sorted(self.model.dependants[taking.id]), another)
        self._finish(taking, "parked", 0, None, False, (waiting,))

    @act(3, blocked, 0, part="after", pick=PICK, priority=[None, 5, -5], to=ENDS_OF_LINE)
    def move_what_is_blocked(self, pick: int, priority: int | None, to: str) -> None:
        name, asked = self.some(blocked(self), pick), self.new("m")
        expected = self.model.move(name, priority, to, asked)
        answer = self.call("job_move", name, "" if priority is None else priority, to, ACT, asked)
        assert answer == list(expected)

    @act(4, parked_for_events, 0, part="after", ms=[1, 5_000, 60_000])
    def nobody_sets_it(self, ms: int) -> None:
        self.pass_time(ms)
        self.beat_all()
        self._sweep()

    @act(3, parked_for_events, 0, part="after", pick=PICK)
    def unpark_what_waits_for_an_event(self, pick: int) -> None:
        """As maintenance would that came upon it: it has no part in that."""
        job = self.model.jobs[self.some(parked_for_events(self), pick)]
        assert self.call("child_ended", job.id, "sub") == 0
        assert self.call("job_unpark", job.id, job.last, "succeeded", "1", 0, "", "", "", "") == ""
