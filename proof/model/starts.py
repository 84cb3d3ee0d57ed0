"""Servers that begin anew, from what was kept of those before: fences on a real Redis beside the plain model.

A server's library is taken from it, so that the next step loads it anew; what is lost are the writes of the fence and
of the clock.
"""

from typing import Any, NamedTuple

import redis

from proof.model.clock import Clocked
from proof.model.lanes import Lanes
from proof.model.mutant import Mutant
from proof.model.steps import Stepping, act

HOUR = 3_600_000


class Kept(NamedTuple):
    """What Redis held, and the model: the last fence, the clock's notes."""

    held: dict[str, bytes]
    fence: int
    clock: tuple[int, int, int, int]


class Starts(Stepping):
    """`exact`: the fences are the model's to the last figure."""

    exact = True
    url = ""
    mutant: Mutant | None = None
    parts = ()

    def __init__(self) -> None:
        super().__init__()
        self.store = Clocked(self.url, self.mutant)
        self.model = Lanes()
        self.greatest = 0
        self.kept: list[Kept] = []  # what one that begins may find
        self.give(1)

    def teardown(self) -> None:
        self.store.close()

    @act(3, number=[1, 2, 30])
    def give(self, number: int) -> None:
        for _ in range(number):
            fence = int(self.store.step("fence_next"))
            assert fence > self.greatest, f"{fence} after {self.greatest}"
            if self.exact:
                assert fence == self.model.next_fence()
                assert fence <= self.model.now * 1000 + 61_000_000, "it runs away"
            self.greatest = self.model.fence = fence
        self.keep()

    @act(2, ms=[1, 20, 400, 800, 5_000, 70_000])
    def time(self, ms: int) -> None:
        self.pass_time(ms)
        self.keep()

    def pass_time(self, ms: int) -> None:
        """The server's clock goes on, or back; then somebody takes a step."""
        self.model.jump(ms)
        self.store.jump(ms)
        assert self.store.now() == self.model.now

    @act(6, ms=[20, 50, 800, 5_000], pick=lambda chance: chance.choice([0, 0, 1, 2, 5, 30]))
    def start(self, ms: int, pick: int) -> None:
        """However much was lost, other starts too: the clocks of all servers agree."""
        self._start(self.kept[-1 - pick % len(self.kept)], ms)

    @act(1, lost=[0, 1, 2])
    def start_where_the_clock_is_behind(self, lost: int) -> None:
        """No start was lost, and less than 59 s; what was before is not lost any more either."""
        since = self.kept[-1]
        self._start(since, 20)
        self.give(1)
        before = self.kept[-1]
        self.give(1 + lost)
        self._start(before, -HOUR)
        self.give(1)
        del self.kept[:-1]

    def keep(self) -> None:
        names = [self.store.key("fence"), self.store.key("clock")]
        values: list[Any] = self.store._client.mget(names)
        model = self.model
        clock = (model.now - model.wall, model.last, model.noted, model.away)
        self.kept.append(Kept(dict(zip(names, values, strict=True)), model.fence, clock))

    def _start(self, kept: Kept, ms: int) -> None:
        model = self.model
        self.store._client.mset(kept.held)
        with redis.Redis.from_url(self.url) as client:
            client.function_delete(self.store.library.name)
        (offset, model.last, model.noted, model.away), model.fence, model.begins = kept.clock, kept.fence, True
        model.now = model.wall + offset
        self.kept = self.kept[: self.kept.index(kept) + 1]
        self.pass_time(ms)
