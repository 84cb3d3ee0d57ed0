"""The machine's steps with quotas: they are declared, lowered, dropped and cooled down while jobs and locks use
them.
"""

from random import Random
from typing import Any

from proof.model import asks
from proof.model.beside import ACT, TTL
from proof.model.collecting import Collecting
from proof.model.machine import BOTH, KEYS, PICK, Machine, at_work
from proof.model.quotas import Bounds
from proof.model.steps import act

NAMES = ["t/a", "t/a", "t/b", "u", "u"]
PREFIXES = ["t/", "t/", ""]
BOUNDS = [
    Bounds(1), Bounds(2), Bounds(2), Bounds(3), Bounds(0), Bounds(None, 3, 7_000, 1), Bounds(2, 1, 1_000, 3),
    Bounds(2, 100, 60_000, 5), Bounds(None, 1, 3_600_000, 2),
]  # fmt: skip
USES = [name for name, asked in asks.FLAVOURS.items() if "uses" in asked]
KEYLESS = ["bare", "fragile", "undo", "undo and hold", "hold", "order", "later", "hurried", "tell", "moved", "room"]
UNTIL = ["", "+5000", "+5000", "+1", 5_000, 60_000, -5_000]


def declared(machine: Machine) -> bool:
    return bool(machine.model.defaults) or any(quota.bounds for quota in machine.model.quotas.values())


def using(machine: Machine) -> bool:
    model = machine.model
    return any(machine.counts(one) and model.jobs[one.id].uses for one in machine.takings)


def waited_for(machine: Machine) -> list[str]:
    """The quotas in whose queues more than one job stands."""
    return [name for name in sorted({*NAMES}) if machine.model.queue(name)[1:]]


def _flavours(chance: Random) -> list[str]:
    return [chance.choice(KEYLESS), chance.choice(USES)]


class Flowing(Collecting):
    @act(3, part="flow", name=NAMES, bounds=BOUNDS)
    def declare(self, name: str, bounds: Bounds) -> None:
        self._declare(name, False, bounds)

    @act(2, part="flow", prefix=PREFIXES, bounds=BOUNDS)
    def declare_a_default(self, prefix: str, bounds: Bounds) -> None:
        self._declare(prefix, True, bounds)

    def _declare(self, name: str, prefix: bool, bounds: Bounds) -> None:
        asked = ["" if one is None else one for one in bounds]
        expected = self.model.declare(name, prefix, bounds)
        assert self.call("quota_declare", name, "1" if prefix else "", *asked, ACT, then=0) == expected

    @act(when=declared, seldom=0, part="flow", name=[*NAMES, *PREFIXES])
    def drop_a_quota(self, name: str) -> None:
        prefix = name in PREFIXES
        expected = self.model.drop_quota(name, prefix)
        assert self.call("quota_drop", name, "1" if prefix else "", ACT, then=0) == expected

    @act(2, declared, 0, part="flow", name=NAMES, until=UNTIL)
    def cool(self, name: str, until: str | int) -> None:
        """`until`: a span, or so long from now by the wall clock; "": it is open again."""
        span = isinstance(until, str)
        instant = int(until or 0) + (self.model.now if span else self.model.wall)
        expected = self.model.cool(name, (span, instant) if until else None)
        assert self.call("quota_cool", name, until if span else instant, ACT, then=0) == expected

    @act(12, declared, 1, part="flow", keys=[(), (), *KEYS], priority=[0, 0, 5, -5], flavours=_flavours, pick=PICK)
    def submit_what_uses(self, keys: tuple[str, ...], priority: int, flavours: list[str], pick: int) -> None:
        self.submit(keys, priority, 1 + pick % 3, flavours, pick)

    @act(2, declared, 0, part="flow", keys=[(), (), *KEYS[:4]], uses=USES, busy=["queue", "queue", "skip"], nested=BOTH,
         pick=PICK)  # fmt: skip
    def lock_what_uses(self, keys: tuple[str, ...], uses: str, busy: str, nested: bool, pick: int) -> None:
        self._lock_for("".join(keys), busy, asks.FLAVOURS[uses]["uses"], nested, pick)

    @act(4, using, 0, part="flow", pick=PICK, delay=[1, 5_000, 30_000], quota=["", *NAMES], chain=BOTH)
    def cool_down(self, pick: int, delay: int, quota: str, chain: bool) -> None:
        """An attempt found a quota exhausted."""
        self._finish(self.taking(pick), "cooled_down", delay, None, chain, quota=quota)

    @act(3, at_work, 0, part="flow", pick=PICK, uses=USES)
    def renew_when_the_units_are_anothers(self, pick: int, uses: str) -> None:
        """Its lease lapses, the next of its quota is given its units, then it says that it lives."""
        one = self.taking(pick)
        self.submit((), 5, 1, [uses], 0)
        self.check()
        self.pass_time(61_000)
        self.beat_all()
        self._sweep()
        self.check()
        self.take("one", 1)
        self.check()
        self._renew([one])

    @act(3, waited_for, 0, part="flow", pick=PICK, moved=BOTH)
    def take_the_head_away(self, pick: int, moved: bool) -> None:
        """Another of its queue may start now."""
        names = waited_for(self)
        if head := self.model.queue(self.some(names, pick))[0] if names else None:
            if moved and head.state == "waiting":
                expected = list(self.model.move(head.id, -5, "back", token := self.new("m")))
                assert self.call("job_move", head.id, -5, "back", ACT, token) == expected
            else:
                self._cancel(head.id)

    @act(2, lambda machine: any(job.lack for job in machine.model.jobs.values()), 0, part="flow", ms=[1_000, 61_000])
    def wait_for_units(self, ms: int) -> None:
        """Who has waited a minute has units set apart."""
        self.pass_time(ms)
        self.beat_all()
        self._sweep()

    def _lock_for(self, key: str, busy: str, uses: Any, nested: bool, pick: int) -> None:
        name = self.new("l")
        fields, job = asks.lock(name, key, TTL, uses)
        self._submit(job, (name, key, busy, *fields), busy, holders=self._holders(pick) if nested else [])

    def _holders(self, pick: int) -> list[tuple[str, str]]:
        """A job at work, or a lock that is held, and seldom one that is over."""
        names = [job.id for job in self.model.jobs.values() if job.state == "running" or pick % 9 == 0]
        return [(name, self.model.jobs[name].token) for name in [self.some(names or ["nobody"], pick)] if names]
