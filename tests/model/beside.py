"""The fixture for users' suites beside the real lanes: two installations of one app, on which the same is done.

Both are asked by way of a `Coordinator`, as users ask. One runs its jobs in memory. The other has the real steps on a
real Redis; a real runner in this process answers its doorbells in place, and its clock is the test's. side.py has the
common part.
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from coordinator import CoordinatorError
from coordinator.execution.parked import Parked
from coordinator.execution.results import Results
from coordinator.execution.runner import Place, Runner, Tools
from coordinator.fleet.board import Board
from coordinator.fleet.nodes import Nodes
from coordinator.in_place.attempts import NODE
from coordinator.in_place.in_place import InPlace
from coordinator.in_place.lines import Lines
from coordinator.in_place.sorters import SortersInMemory
from coordinator.jobs.record import Job, parse
from coordinator.lanes.lane import Lane, look
from coordinator.lanes.lanes import Lanes
from coordinator.lanes.locks import Locks
from coordinator.lanes.sorter import Sorters
from coordinator.settings import Settings
from coordinator.store.wire import Arg
from tests.model.clock import Clocked
from tests.model.record import BEGINNING
from tests.model.side import Side

SILENT = ("add", "pause", "flush", "submit_many")  # calls that ring no doorbell themselves, or not after an error
ERRORS = [kind.__name__ for kind in CoordinatorError.__subclasses__()]


class InMemory(Side):
    def __init__(self, real: "Real") -> None:
        super().__init__("memory", "redis://127.0.0.1:1/0")
        self._real = real

    def begin(self) -> None:
        super().begin()
        self.core = InPlace(self.app)
        self.now = BEGINNING
        self.core.rules.now = lambda: self.now  # type: ignore[method-assign]
        self.core.rules.join_due = self._pass_time  # type: ignore[method-assign]
        given = {"core": self.core, "_locks": self.core, "_sorters": SortersInMemory(self.core)}
        vars(self.coordinator).update(given)

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        self._set_clock()
        return super().call(name, *args, **options)

    def seen(self, ids: list[str], keys: list[str]) -> dict[str, Any]:
        self._set_clock()
        return super().seen(ids, keys)

    def _set_clock(self) -> None:
        """Both sides begin a call at the same moment."""
        if not self.depth:
            self.now = self._real.store.jump(0)

    def _pass_time(self) -> None:
        """Within a call, time passes in memory too: a job that comes later may be due already."""
        self.now = max(self.now, *self.core.rules.delayed.values(), 0)
        Lines.join_due(self.core.rules)

    def flush(self, *names: str) -> None:
        self.core.flush(*names)

    def jobs(self, ids: list[str]) -> Iterator[Job | None]:
        for job_id in ids:
            yield self.core.job(job_id) if job_id in self.core.rules.records else None

    def lines(self, keys: list[str]) -> list[Lane]:
        return [self.core.lane(key) for key in keys]


ANSWERED_IN_PLACE = (
    "job_submit", "job_cancel", "job_retry", "job_move", "lane_limit", "lane_release", "lane_resume",
    "lock_take", "lock_release", "grab_take", "grab_end",
)  # fmt: skip


class Steps(Clocked):
    """The one place where the store's steps are called by name. `settle` answers the doorbells of a caller's steps."""

    def __init__(self, settings: Settings, settle: Callable[[], None] | None = None) -> None:
        super().__init__(settings)
        self._settle = settle

    def step(self, name: str, *args: Arg, job_id: str | None = None, eager: bool = False) -> Any:
        answer = super().step(name, *args, job_id=job_id, eager=eager)
        refused = answer == b"" or (name == "job_move" and not answer[1])
        if self._settle and name in ANSWERED_IN_PLACE and not refused:
            self._settle()
        return answer

    def step_many(self, name: str, calls: Iterable[Sequence[Arg]]) -> list[Any]:
        answers = [super(Steps, self).step(name, *args) for args in calls]
        if self._settle:
            self._settle()
        return answers

    def sweep(self) -> None:
        self.step("sweep", 0, 10**13)

    def flush(self) -> None:
        self.step("sorter_flush", 1000)


class Real(Side):
    def __init__(self, url: str, prefix: str) -> None:
        super().__init__(prefix, url)
        self.store = Steps(self.coordinator.settings)
        self.quiet = Lanes(self.store)
        self.rung = Steps(self.coordinator.settings, self.settle)
        core = Lanes(self.rung)
        given = {"store": self.rung, "core": core, "_locks": Locks(self.rung, core), "_sorters": Sorters(self.rung)}
        vars(self.coordinator).update(given)
        self._place = Place(NODE, self.quiet, self.coordinator.doorbells, "first", Board.open())
        self._tools = Tools(self.app, self._place)
        self._parked, self._results = Parked(self.quiet, self.app), Results(self.store, self.quiet, self.app)

    def begin(self) -> None:
        super().begin()
        self.store.forget()
        self.store.client.set(self.store.prefix + "time", BEGINNING)
        about = {"app": "shop", "capacity": 1000, "ordinary": 0, "load": 0}
        names = [task.name for task in self.tasks.values()]
        Nodes(self.store).register(NODE, "first", about, ["app shop", "queue celery"], [*names, "coordinator.canvas"])

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        answer = super().call(name, *args, **options)
        if answer == "LaneFull" or (name in SILENT and answer not in ERRORS):
            self.settle()
        if name in ("cancel", "retry", "move") and answer not in ERRORS:
            return self.coordinator.job(args[0]).state  # in place, a call answers once nothing more can run
        return answer

    def settle(self) -> None:
        while True:
            self._results.step()
            self._pass_time()
            if not self._look_at_parked() and not self._run() and not self._break_rings():
                return

    def _run(self) -> int:
        """A runner of its own: a job that another runner has may be the one that calls."""
        bell = uuid.uuid4().hex
        self.store.client.zadd(self.store.key("rung", NODE), {bell: 2**53})
        done = Runner(self.app, self._place, self._tools).run(bell)
        assert self._tools.outbox.flush(60)  # a thread sends the links
        return done

    def _break_rings(self) -> bool:
        """Did a sweep end one? Else nothing is due."""
        before = self._parked_now()
        self.store.sweep()
        return before != self._parked_now()

    def _pass_time(self) -> None:
        """Delayed jobs are due."""
        found: list[Any] = []
        for name in ("due", "starts"):
            found += self.store.client.zrange(self.store.key(name), -1, -1, withscores=True)
        if found:
            last = int(max(at for _, at in found))
            self.store.jump(max(0, last - self.store.jump(0)))
            self.store.sweep()

    def _look_at_parked(self) -> bool:
        """Did one go on?"""
        client, parked = self.store.client, self.store.key("parked", "shop")
        names: Any = client.zrange(parked, 0, -1)
        if not names:
            return False
        client.zadd(parked, dict.fromkeys(names, 0))
        before = self._parked_now()
        self._parked.step()
        return before != self._parked_now()

    def _parked_now(self) -> Any:
        found = self.store.client.zrange(self.store.key("parked", "shop"), 0, -1)
        return sorted(found), self.store.client.smembers(self.store.key("state", "parked"))  # type: ignore[arg-type]

    def flush(self, *names: str) -> None:
        client, sorters = self.store.client, self.store.key("sorters")
        found: Any = client.zrange(sorters, 0, -1)
        for name in sorted(found):
            if not names or name.decode() in names:
                client.zadd(sorters, {name: 0})
                self.store.flush()

    def jobs(self, ids: list[str]) -> Iterator[Job | None]:
        pipeline = self.store.client.pipeline()
        for job_id in ids:
            pipeline.hgetall(self.store.key("job", job_id))
        found = dict(zip(ids, pipeline.execute(), strict=True))
        for job_id, record in found.items():
            other = record[b"alias"].decode() if b"alias" in record else job_id
            yield parse(other, found[other]) if record else None

    def lines(self, keys: list[str]) -> list[Lane]:
        return look(self.store, keys, 100)


@contextmanager
def both(url: str, prefix: str) -> Iterator[tuple[InMemory, Real]]:
    real = Real(url, prefix)
    logging.disable(logging.ERROR)  # the tasks fail on purpose
    try:
        yield InMemory(real), real
    finally:
        logging.disable(logging.NOTSET)
        real.store.forget()
        real.store.close()
        real.rung.close()
