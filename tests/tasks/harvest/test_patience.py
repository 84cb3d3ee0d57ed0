"""A member that comes and goes makes progress within one run; one that is gone keeps no slot."""

import threading
import time
from collections import Counter

import pytest

from examples.demo.member_server import Reply, Request
from tasks.harvest.fetcher import COMEBACKS
from tasks.member_node.client import AsksToWait, MemberTimedOut, MemberUnreachable
from tests.harness.waiting import wait_until, within
from tests.tasks.conftest import Federation, at


class Flapping:
    """A hook: the member closes all connections for `down` seconds, each time after it delivered `up` objects."""

    def __init__(self, up: int, down: float) -> None:
        self.up, self.down = up, down
        self.silences = 0
        self.seen: Counter[str] = Counter()
        self._delivered = 0
        self._until = 0.0
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> None:
        with self._lock:
            if time.monotonic() < self._until:
                raise ConnectionAbortedError
            self.seen["/".join(request.path)] += 1
            self._delivered += request.path[0] == "meta"
            if self._delivered > self.up:
                self.silences, self._delivered, self._until = self.silences + 1, 0, time.monotonic() + self.down
                raise ConnectionAbortedError


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run waits so long that a busy machine does not count."""
    monkeypatch.setattr("tasks.harvest.patience.MOST", 60.0)


@pytest.mark.usefixtures("patient")
def test_a_member_that_comes_and_goes_is_harvested_by_one_run_and_no_object_is_blamed(federation: Federation) -> None:
    federation.server.fill(300, first=at(0))
    flapping = federation.server.hook = Flapping(70, 0.4)
    outcome = federation.harvest()
    assert (outcome.outcome, outcome.stored, outcome.failed) == ("succeeded", 300, 0)
    assert flapping.silences >= 4
    assert federation.harvested == federation.server.pids
    assert federation.server.errors == []


@pytest.mark.usefixtures("patient")
def test_a_member_that_does_not_answer_from_the_beginning_is_waited_for_no_longer(federation: Federation) -> None:
    federation.server.fill(50, first=at(0))
    federation.server.hook = Flapping(-1, 60)
    with within(20), pytest.raises(MemberUnreachable):
        federation.harvest()


@pytest.mark.usefixtures("patient")
def test_a_member_that_delivers_nothing_between_two_silences_is_waited_for_once(federation: Federation) -> None:
    federation.server.fill(100, first=at(0))
    delivered: list[str] = []
    silent, back = [0.0], [0.0]

    def hook(request: Request) -> None:
        if len(delivered) < 40:
            delivered.extend(request.path[1:] if request.path[0] == "meta" else ())
            return
        silent[0] = silent[0] or time.monotonic()
        if back[0] or request.path[0] == "meta" or time.monotonic() < silent[0] + 0.5:
            raise ConnectionAbortedError
        back[0] = time.monotonic()  # one ping is answered, and nothing after it

    federation.server.hook = hook
    with pytest.raises(MemberUnreachable):
        federation.harvest()
    assert time.monotonic() - back[0] < 20
    assert federation.catalog.summary(federation.member_id)[:2] == (40, 0)


def test_an_object_that_silences_the_member_has_failed_in_the_end(federation: Federation) -> None:
    """It does so between deliveries alone: a client that asks for one more than it has connections has got one."""
    federation.server.fill(60, first=at(0))
    poison, seen, lock = "doi:10.5/000020", Counter[str](pings=2), threading.Lock()

    def hook(request: Request) -> None:
        with lock:
            seen["poison"] += request.path[-1] == poison
            if request.path[-1] == poison and seen["served"] > federation.settings.connections:
                seen["silences"] += 1
                seen["served"] = seen["pings"] = 0
            seen["pings"] += request.path[0] == "monitor"
            if request.path[-1] == poison or seen["pings"] < 2:
                raise ConnectionAbortedError
            seen["served"] += request.path[0] == "meta"

    federation.server.hook = hook
    federation.harvest()
    assert seen["silences"]
    assert seen["poison"] <= federation.settings.tries * (1 + COMEBACKS)
    assert poison in {one.pid for one in federation.catalog.failed(federation.member_id)}
    due = max(one.next_try for one in federation.catalog.failed(federation.member_id))
    federation.server.hook = lambda request: None
    federation.harvest(clock=lambda: due)
    assert federation.harvested == federation.server.pids


def test_what_was_fetched_is_stored_within_seconds_while_the_member_hangs(federation: Federation) -> None:
    federation = federation.with_settings(read_timeout=60, request_timeout=60)
    federation.server.fill(60, first=at(0))
    over = threading.Event()

    def hang(request: Request) -> None:
        if request.path == ("meta", "doi:10.5/000030"):
            over.wait(40)

    federation.server.hook = hang
    run = threading.Thread(target=federation.harvest)
    run.start()
    wait_until(lambda: len(federation.harvested) == 59, what=lambda: f"{len(federation.harvested)} are stored")
    cursor = federation.catalog.cursor(federation.member_id, "increment")
    over.set()
    run.join(60)
    assert cursor
    assert federation.harvested == federation.server.pids


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, RuntimeError])
def test_however_a_run_ends_what_it_fetched_is_stored(federation: Federation, error: type[BaseException]) -> None:
    federation = federation.with_settings(page_size=300)
    federation.server.fill(300, first=at(0))

    def end(done: int, total: int) -> None:
        raise error

    with pytest.raises(error):
        federation.harvest(progress=end)
    assert len(federation.harvested) == 100
    assert federation.catalog.cursor(federation.member_id, "increment")
    assert federation.harvest().stored == 200


def test_a_ping_that_hangs_ends_the_wait_in_time(federation: Federation) -> None:
    federation = federation.with_settings(read_timeout=90, request_timeout=90)
    federation.server.fill(200, first=at(0))
    dead, over = threading.Event(), threading.Event()

    def die(request: Request) -> None:
        if request.path == ("meta", "doi:10.5/000150"):
            dead.set()
        if dead.is_set() and request.path[0] == "monitor":
            over.wait(90)
        if dead.is_set():
            raise ConnectionAbortedError

    federation.server.hook = die
    with within(30), pytest.raises(MemberTimedOut):
        federation.harvest()
    over.set()
    assert federation.catalog.summary(federation.member_id).failed == 0


class Limited:
    """A hook: the member answers so many requests, and then asks to wait until the test lets it rest."""

    def __init__(self, most: int) -> None:
        self.most, self.left = most, most
        self.refused = 0
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Reply | None:
        with self._lock:
            if self.left:
                self.left -= 1
                return None
            self.refused += 1
            return Reply(b"", 429, {"Retry-After": "30"})


def test_a_member_with_a_rate_is_harvested_in_turns_and_no_object_is_blamed(federation: Federation) -> None:
    federation.server.fill(150, first=at(0))
    limited = federation.server.hook = Limited(40)
    stored, pauses = [0], set()
    for _ in range(10):
        try:
            outcome = federation.harvest()
            break
        except AsksToWait as asks:
            pauses.add(asks.seconds)
            stored.append(len(federation.harvested))
            limited.left = limited.most
    assert (outcome.outcome, outcome.failed, pauses) == ("succeeded", 0, {30})
    assert federation.harvested == federation.server.pids
    assert stored == sorted({*stored}), "each turn stores some"
    assert limited.refused <= len(stored) * (federation.settings.connections + 1), "no try again within a turn"
    assert federation.server.errors == []
