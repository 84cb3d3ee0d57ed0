"""The last free slot of a worker, which its wake-ups share with a real queue on Redis."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.app.defaults import NAMESPACES
from celery.worker import state
from celery.worker.consumer.tasks import Tasks
from kombu import Connection

from coordinator.core.celery_patches import last_slot as module
from coordinator.core.celery_patches.last_slot import LastSlot, last_slot
from tests.harness.proxy import Proxy

pytestmark = pytest.mark.skipif("disable_prefetch" not in NAMESPACES["worker"], reason="a worker always fetches ahead")

MOMENT = 0.02  # seconds


class Worker(SimpleNamespace):
    """As much of Celery's consumer as its step `Tasks` makes and uses."""

    def __init__(self, app: Celery, connection: Connection, slots: int = 1, hub: object = "a loop") -> None:
        super().__init__(
            app=app, connection=connection, hub=hub, update_strategies=bytes, initial_prefetch_count=0,
            on_decode_error=None, connection_errors=connection.connection_errors,
            controller=SimpleNamespace(max_concurrency=None), pool=SimpleNamespace(num_processes=slots, is_green=False),
        )  # fmt: skip
        Tasks(self).start(self)
        self.task_consumer.consume()
        self.slots = last_slot(self)

    def take(self, admit: Callable[[Any], bool]) -> bool:
        """Read the next message."""
        found = list[bool]()
        self.task_consumer.on_message = lambda message: found.append(admit(message))
        self.connection.drain_events(timeout=10)
        return found[0]

    def ask(self) -> None:
        """Ask the broker, if a slot is free; nothing comes."""
        found = list[object]()
        self.task_consumer.on_message = found.append
        with suppress(TimeoutError):
            self.connection.drain_events(timeout=0.05)
        assert not found


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What has a slot."""
    taken = set[str]()
    monkeypatch.setattr(state, "reserved_requests", taken)
    return taken


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Of the slots; it stands still."""
    now = SimpleNamespace(now=1000.0, monotonic=lambda: now.now)
    monkeypatch.setattr(module, "time", now)
    return now


@pytest.fixture
def app(proxy: Proxy, prefix: str) -> Iterator[Celery]:
    app = Celery("shop", broker=proxy.url(1), set_as_current=False)
    options = {"global_keyprefix": f"{prefix}.", "socket_timeout": 2}
    app.conf.update(worker_disable_prefetch=True, broker_transport_options=options)
    with closing(app):
        yield app


@pytest.fixture
def connection(app: Celery) -> Iterator[Connection]:
    with app.connection_for_read() as one:
        yield one
        with suppress(*one.connection_errors):
            one.default_channel.queue_purge("celery")


def waiting(app: Celery) -> int:
    with app.connection_for_read() as connection:
        return int(connection.default_channel._size("celery"))


def owe(worker: Worker, busy: set[str]) -> LastSlot:
    """Give a message back for which no slot is left. All slots are free then."""
    assert worker.slots
    worker.ask()
    busy.update(str(number) for number in range(worker.pool.num_processes))
    worker.app.send_task("shop.work")
    assert not worker.take(worker.slots.admit)
    busy.clear()
    return worker.slots


def test_a_message_that_comes_when_no_slot_is_left_goes_back_to_its_queue(
    app: Celery, connection: Connection, busy: set[str]
) -> None:
    """The broker was asked while one was free; kombu from 5.7 on would leave the answer unread."""
    worker = Worker(app, connection)
    owe(worker, busy)
    assert waiting(app) == 1
    busy.add("a job")
    worker.ask()
    assert waiting(app) == 1, "it asks for no message without a slot"
    busy.clear()
    assert worker.take(worker.slots.admit)
    assert waiting(app) == 0


def test_the_next_slot_is_the_broker_s_if_it_has_something_at_once(
    app: Celery, connection: Connection, busy: set[str], time: SimpleNamespace
) -> None:
    worker = Worker(app, connection)
    slots = owe(worker, busy)
    assert slots.wait() == pytest.approx(MOMENT)
    time.now += MOMENT / 2
    assert slots.wait() == pytest.approx(MOMENT / 2)
    time.now += MOMENT / 2
    assert slots.wait() == 0
    time.now += MOMENT
    assert slots.wait() == 0, "its turn is over"


def test_a_turn_of_the_broker_begins_when_the_slot_is_free(
    app: Celery, connection: Connection, busy: set[str], time: SimpleNamespace
) -> None:
    slots = owe(Worker(app, connection), busy)
    for _ in range(2):
        busy.add("a job")
        assert slots.wait() == float("inf")
        time.now += 1
        busy.clear()
        assert slots.wait() == pytest.approx(MOMENT)


def test_nobody_waits_for_a_turn_while_more_than_one_slot_is_free(
    app: Celery, connection: Connection, busy: set[str]
) -> None:
    slots = owe(Worker(app, connection, slots=2), busy)
    assert slots.wait() == 0
    assert not slots.is_for_wake_up


def test_after_a_message_of_the_broker_the_last_slot_is_a_wake_up_s(
    app: Celery, connection: Connection, busy: set[str]
) -> None:
    worker = Worker(app, connection)
    slots = owe(worker, busy)
    assert not slots.is_for_wake_up
    assert worker.take(slots.admit)
    assert (slots.is_for_wake_up, slots.wait()) == (True, 0)
    busy.add("its task")
    assert not slots.is_for_wake_up


def test_a_pool_that_grows_has_as_many_slots_as_it_may_grow_to(
    app: Celery, connection: Connection, busy: set[str]
) -> None:
    worker = Worker(app, connection)
    worker.controller.max_concurrency = 2
    busy.add("a job")
    assert worker.slots
    assert worker.slots.wait() == 0
    busy.add("another")
    assert worker.slots.wait() == float("inf")


@pytest.mark.parametrize("message", [True, False], ids=["it has something", "it has nothing"])
def test_a_loop_that_blocks_leaves_the_next_slot_to_a_broker_that_has_something(
    app: Celery, connection: Connection, busy: set[str], message: bool
) -> None:
    worker = Worker(app, connection, hub=None)
    assert worker.slots
    if message:
        app.send_task("shop.work")
    worker.slots.took()
    assert worker.slots.wait() == 0, "a slot is left"
    busy.add("the job")
    worker.slots.took()
    busy.clear()
    assert worker.slots.wait() == (pytest.approx(2.5) if message else 0)


def test_a_loop_that_blocks_goes_on_while_its_broker_is_away(
    app: Celery, connection: Connection, busy: set[str], proxy: Proxy
) -> None:
    worker = Worker(app, connection, hub=None)
    assert worker.slots
    busy.add("the job")
    proxy.cut()
    worker.slots.took()
    busy.clear()
    assert worker.slots.wait() == 0


@pytest.mark.parametrize("broker", [None, "memory://"], ids=["redis", "memory"])
def test_a_worker_that_fetches_ahead_has_no_last_slot(app: Celery, broker: str | None) -> None:
    if broker:
        app.conf.broker_url = broker
    else:
        app.conf.worker_disable_prefetch = False
    with app.connection_for_read() as connection:
        assert Worker(app, connection).slots is None


def test_a_pool_of_greenlets_has_as_many_slots_as_it_may_have_greenlets() -> None:
    """Celery 5.6 counts those at work, and so took each such pool for full: nothing ran in it."""
    pool: Any = SimpleNamespace(is_green=True, limit=100, num_processes=0)
    assert module.slots_of(pool) == 100
    pool.is_green = False
    pool.num_processes = 4
    assert module.slots_of(pool) == 4
