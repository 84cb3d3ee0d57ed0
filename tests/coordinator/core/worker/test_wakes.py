"""The worker's end of its wake-ups, on a loop of kombu's or without one."""

import os
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.app.trace import fast_trace_task
from celery.worker import state
from kombu.asynchronous import Hub
from kombu.serialization import prepare_accept_content

from coordinator import Coordinator
from coordinator.core.celery_patches import last_slot
from coordinator.core.fleet.status_file import StatusFile
from coordinator.core.runner.claim import TASK
from coordinator.core.runner.runner import WorkerContext, install_runner
from coordinator.core.supervisor.wakes import wake_worker
from coordinator.core.worker.wakes import WakeUps
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

Wake = Callable[[str], None]


class Qos:
    restore_by_tag: Any = None
    _quick_ack = staticmethod(repr)

    def can_consume(self) -> bool:
        return True


class Worker(SimpleNamespace):
    """As much of Celery's consumer as takes wake-ups. `limited`: its broker is asked only while a slot is free."""

    def __init__(self, slots: int, limited: bool = True, hub: Hub | None = None) -> None:
        self.back: set[str] = set()  # messages that lie in their queue again
        qos = Qos()
        qos.restore_by_tag = self.back.add
        if limited:
            qos.can_consume = lambda: True  # type: ignore[method-assign]
        self.channel = SimpleNamespace(qos=qos, _in_poll="asked", active_queues={"celery"}, _size=lambda queue: 0)
        self.begun: list[str] = []
        super().__init__(
            hub=hub, timer=hub and hub.timer, pool=SimpleNamespace(num_processes=slots, is_green=False),
            controller=SimpleNamespace(), task_consumer=SimpleNamespace(channel=self.channel),
            connection_errors=(OSError,), on_task_message=(), strategies={TASK: self.begin},
        )  # fmt: skip

    def begin(self, message: Any, body: object, ack: object, reject: object, callbacks: object) -> None:
        self.begun.append(message.headers["id"])
        state.reserved_requests.add(message.headers["id"])


def message(tag: str = "one") -> Any:
    """Of the broker."""
    return SimpleNamespace(delivery_tag=tag)


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What has a slot."""
    taken = set[str]()
    monkeypatch.setattr(state, "reserved_requests", taken)
    return taken


@pytest.fixture
def wakes() -> Iterator[WakeUps]:
    made = WakeUps()
    yield made
    if made._thread:
        made._thread.stop()
    made._socket.close()
    made._other.close()


@pytest.fixture
def wake(wakes: WakeUps) -> Iterator[Wake]:
    """As the supervisor does."""
    with socket.socket(fileno=os.dup(wakes.supervisor_end)) as end:
        yield lambda name: wake_worker(end, name.encode())


class Poller:
    """Of a loop that never waits. `longest`: for how long it would have waited, at most."""

    def __init__(self, poller: Any) -> None:
        self.register, self.unregister, self.close = poller.register, poller.unregister, poller.close
        self._poll, self.longest = poller.poll, 0.0

    def poll(self, timeout: float) -> Any:
        if not (events := self._poll(0)):
            self.longest = max(self.longest, timeout)
        return events


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    made.timer.call_after(60, bytes)
    made.poller = Poller(made.poller)
    silent = socket.socketpair()
    made.add_reader(silent[0], bytes)  # without any, a loop sleeps
    yield made
    made.close()
    for end in silent:
        end.close()


def turn(hub: Hub, times: int = 5) -> None:
    for _ in range(times):
        next(hub.loop)


def watches(hub: Hub, wakes: WakeUps) -> bool:
    return wakes._socket.fileno() in hub.readers


def test_each_wake_up_starts_a_runner(wakes: WakeUps, wake: Wake, hub: Hub) -> None:
    worker = Worker(4, hub=hub)
    wakes.start(worker)
    wake("1-1")
    wake("1-2")
    turn(hub)
    assert worker.begun == ["1-1", "1-2"]


def test_while_no_slot_is_free_the_loop_does_not_look_at_wake_ups(
    wakes: WakeUps, wake: Wake, hub: Hub, busy: set[str]
) -> None:
    worker = Worker(1, hub=hub)
    wakes.start(worker)
    for name in ("1-1", "1-2"):
        wake(name)
    turn(hub)
    assert (worker.begun, watches(hub, wakes)) == (["1-1"], False)
    busy.clear()
    turn(hub)
    assert (worker.begun, watches(hub, wakes)) == (["1-1", "1-2"], False)
    busy.clear()
    turn(hub)
    assert watches(hub, wakes)


def test_a_slot_that_is_taken_meanwhile_leaves_the_wake_up_where_it_is(
    wakes: WakeUps, wake: Wake, hub: Hub, busy: set[str]
) -> None:
    worker = Worker(1, hub=hub)
    wakes.start(worker)
    turn(hub)
    assert watches(hub, wakes)
    busy.add("an ordinary task")
    wake("1-1")
    turn(hub)
    assert (worker.begun, watches(hub, wakes)) == ([], False)
    busy.clear()
    turn(hub)
    assert worker.begun == ["1-1"]


def test_a_worker_that_fetches_ahead_takes_each_wake_up_at_once(wakes: WakeUps, wake: Wake, hub: Hub) -> None:
    worker = Worker(1, limited=False, hub=hub)
    wakes.start(worker)
    wake("1-1")
    wake("1-2")
    turn(hub)
    assert worker.begun == ["1-1", "1-2"]
    assert wakes.admit(worker, message())


def test_a_strategy_that_raises_ends_nothing(
    wakes: WakeUps, wake: Wake, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(4, hub=hub)
    worker.strategies[TASK] = lambda *_: {}["no pool"]
    wakes.start(worker)
    wake("1-1")
    turn(hub)
    assert "no pool" in caplog.text
    worker.strategies[TASK] = worker.begin
    wake("1-2")
    turn(hub)
    assert worker.begun == ["1-2"]


@pytest.mark.parametrize("looping", [True, False], ids=["a loop", "a thread"])
def test_nothing_is_read_after_a_stop_and_what_came_meanwhile_is_read_after_the_next_start(
    wakes: WakeUps, wake: Wake, hub: Hub, looping: bool
) -> None:
    worker = Worker(4, hub=hub if looping else None)

    def has_begun(*names: str) -> bool:
        turn(hub)
        return worker.begun == [*names]

    wakes.start(worker)
    wake("1-1")
    wait_until(lambda: has_begun("1-1"))
    turn(hub)
    wakes.stop(worker)
    wakes.stop(worker)
    wake("1-2")
    turn(hub)
    assert (worker.begun, watches(hub, wakes), wakes._thread) == (["1-1"], False, None)
    wakes.start(worker)
    wait_until(lambda: has_begun("1-1", "1-2"))
    wakes.stop(worker)


def test_without_a_loop_a_thread_waits_for_a_wake_up_and_then_for_a_slot(
    wakes: WakeUps, wake: Wake, busy: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(1)
    wakes.start(worker)
    assert wakes.slots
    asked, wait = list[float](), wakes.slots.wait
    monkeypatch.setattr(wakes.slots, "wait", lambda: asked.append(wait()) or asked[-1])
    busy.add("an ordinary task")
    wake("1-1")
    wait_until(lambda: len(asked) > 2)
    assert worker.begun == []
    busy.clear()
    wait_until(lambda: worker.begun == ["1-1"])
    busy.add("an ordinary task")
    wake("1-2")
    wait_until(lambda: asked[-1] > 0)
    wakes.stop(worker)
    assert worker.begun == ["1-1"], "it stopped before a slot was free"


def test_without_a_loop_messages_and_wake_ups_take_turns_as_well(wakes: WakeUps, wake: Wake, busy: set[str]) -> None:
    worker = Worker(1)
    worker.channel._size = lambda queue: 1  # a message waits
    wakes.start(worker)
    assert wakes.slots
    wake("1-1")
    wait_until(lambda: worker.begun == ["1-1"] and wakes.slots and wakes.slots._next == "broker")
    busy.clear()
    assert wakes.slots.wait() > 0
    assert wakes.admit(worker, message())
    assert wakes.slots.wait() == 0
    assert wakes.admit(worker, message())
    wakes.stop(worker)


def test_a_wake_up_that_waits_for_the_broker_s_turn_has_the_slot_as_soon_as_that_is_over(
    wakes: WakeUps, wake: Wake, hub: Hub, busy: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_slot, "time", time := SimpleNamespace(monotonic=lambda: time.now, now=1000.0))
    worker = Worker(1, hub=hub)
    wakes.start(worker)
    busy.add("a job")
    assert not wakes.admit(worker, message("late"))
    assert worker.back == {"late"}
    wake("1-1")
    turn(hub)
    busy.clear()
    hub.poller.longest = 0.0
    wait_until(lambda: turn(hub, 1) or hub.poller.longest > 0, what="the loop never rests")
    assert worker.begun == [], "the broker has something at once"
    time.now += 0.02
    wait_until(lambda: turn(hub, 1) or worker.begun == ["1-1"])
    assert hub.poller.longest <= 0.02


def test_after_a_task_of_the_broker_a_wake_up_that_is_there_has_the_next_turn(
    wakes: WakeUps, wake: Wake, hub: Hub, busy: set[str]
) -> None:
    worker, messages = Worker(1, hub=hub), [message(str(number)) for number in range(4)]
    wakes.start(worker)
    assert wakes.admit(worker, messages[0])
    busy.add("its task")
    wake("1-1")
    turn(hub)
    busy.clear()
    wakes._watch(worker)  # and in this turn of the loop, the next message is read first
    assert not wakes.admit(worker, messages[1])
    assert (worker.begun, worker.back) == (["1-1"], {"1"})
    busy.clear()
    turn(hub)
    assert wakes.admit(worker, messages[2])
    turn(hub)
    assert watches(hub, wakes)
    assert wakes.admit(worker, messages[3]), "without a wake-up it is the broker's"


@pytest.mark.parametrize("accepted", ["json", "pickle"])
def test_a_wake_up_runs_a_job_whatever_messages_its_app_accepts(
    wakes: WakeUps, wake: Wake, hub: Hub, node: Puppet, redis_server: RedisServer, prefix: str, accepted: str
) -> None:
    app = Celery("shop", broker="memory://", set_as_current=False)
    app.conf.update(task_serializer=accepted, accept_content=[accepted], result_serializer=accepted)
    done, sent = list[str](), list[tuple[Any, dict[str, Any]]]()

    def work() -> None:
        done.append("a")

    app.task(work, name="shop.work", shared=False)
    coordinator, status_file = Coordinator(app, url=redis_server.url(0), prefix=prefix), StatusFile.open()
    install_runner(app, lambda: WorkerContext("one", coordinator._lanes, "a", status_file))
    app.finalize()
    worker = Worker(4, hub=hub)
    worker.__dict__.update(
        hostname="one", event_dispatcher=None, disable_rate_limits=True, task_buckets={}, apply_eta_task=None,
        _limit_task=None, _limit_post_eta=None, on_task_request=lambda request: request.execute_using_pool(pool),
    )  # fmt: skip
    pool = worker.pool
    pool.apply_async = lambda _, args, **options: sent.append((args, options))
    worker.controller.state = state
    worker.strategies[TASK] = app.tasks[TASK].start_strategy(app, worker)
    wakes.start(worker)
    node.submit("a", job_id="j")
    [bell] = node.rung()
    wake(bell)
    turn(hub)
    [(args, options)] = sent
    assert (options["correlation_id"], options["timeout"] > 300 * 86400) == (bell, True)
    location = (app.tasks, prepare_accept_content(app.conf.accept_content), "here")
    assert fast_trace_task(*args, _loc=location)[0] == 0
    assert (done, node.lanes.job("j").state) == (["a"], "succeeded")
    status_file.close()
    coordinator.close()
    app.close()
