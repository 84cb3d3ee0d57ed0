"""When a node starts the errands of its app, and when it lets them end."""

import os
import signal
import time
from pathlib import Path

import pytest

from coordinator.fleet import processes
from coordinator.warden.clock import __main__ as main
from coordinator.warden.clock.clock import Clock
from coordinator.warden.companion import Companion, LineReader
from tests.coordinator.warden.clock.test_clock import clock_of
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

ECHO = "import sys; [print(line, end='', flush=True) for line in sys.stdin]"


@pytest.fixture
def clock(redis_server: RedisServer, prefix: str) -> Clock:
    return clock_of(redis_server, prefix)


@pytest.fixture
def node(clock: Clock) -> Puppet:
    return up(clock, "two")


def up(clock: Clock, name: str) -> Puppet:
    node = Puppet(clock.store, name=name)
    node.up()
    return node


def is_due(node: Puppet) -> bool:
    beat = node.nodes.beat(node.name, node.incarnation, {})
    assert beat
    return beat.errands


def owe(clock: Clock, ms: int = 0) -> None:
    """A result, for so long."""
    clock.store._client.zadd(clock.store.key("unsent", "shop"), {"job": clock.store.now() - ms})


def pass_time(clock: Clock, node: Puppet, ms: int) -> None:
    """For whoever does errands, and for what waits."""
    client, key = clock.store._client, clock.store.key
    for member in client.zrange(key("errands", "shop"), 0, -1):
        client.zincrby(key("errands", "shop"), -ms, member)
    if since := client.get(key("waits")):
        client.set(key("waits"), int(since) - ms)


def test_one_node_does_what_is_due_and_one_more_helps_for_each_four_seconds_that_it_has_waited(
    clock: Clock, node: Puppet
) -> None:
    three = up(clock, "three")
    assert not is_due(node)
    owe(clock)
    assert [is_due(node), is_due(three), is_due(node)] == [True, False, True]
    owe(clock, 3_900)
    assert [is_due(node), is_due(three)] == [True, False]
    owe(clock, 4_001)
    clock.step()
    assert [is_due(node), is_due(three), clock.errands_due] == [True, False, True], "the first that asks"
    owe(clock, 8_001)
    assert is_due(three)


def test_whoever_did_nothing_for_a_minute_is_no_longer_the_one(clock: Clock, node: Puppet) -> None:
    three = up(clock, "three")
    owe(clock)
    assert is_due(node)
    pass_time(clock, node, 50_000)
    assert not is_due(three)
    assert is_due(node)
    pass_time(clock, node, 50_000)
    assert not is_due(three), "its last work was a moment ago"
    pass_time(clock, node, 61_000)
    assert [is_due(three), is_due(node)] == [True, False]


def test_that_jobs_wait_is_due_after_half_a_minute_unless_somebody_has_looked_or_none_waited_in_between(
    clock: Clock, node: Puppet
) -> None:
    submitted = [node.submit("k", job_id=name) for name in ("first", "second")]
    assert not is_due(node)
    pass_time(clock, node, 29_000)
    assert not is_due(node)
    pass_time(clock, node, 1_000)
    clock.store.read("SET", clock.store.key("looked"), 1)
    assert not is_due(node)
    clock.store.read("DEL", clock.store.key("looked"))
    assert is_due(node)
    for _ in submitted:
        node.finish(node.must_take())
    assert not is_due(node)
    node.submit("k")
    assert not is_due(node), "it has begun to wait"


def test_a_node_keeps_its_errands_for_a_minute_after_their_last_work_and_those_with_plugins_for_ever(
    clock: Clock, node: Puppet, monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer, prefix: str
) -> None:
    clock.step()
    assert not clock.needs_errands
    owe(clock)
    clock.step()
    assert clock.needs_errands
    clock.store.step("notices_sent", "shop", "job")
    clock.step()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 59)
    assert clock.needs_errands
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    assert not clock.needs_errands
    object.__setattr__(clock.charge, "plugins", True)
    assert clock.needs_errands


def test_the_errands_begin_once_they_are_needed_and_end_once_they_are_not(
    clock: Clock, node: Puppet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    errands = Companion("the errands", ["-c", ECHO], tmp_path / "errands", 600, 600)
    seen: list[bool] = []

    def ended(_: LineReader, seconds: float) -> bool:
        seen.append(errands._process is not None)
        match len(seen):
            case 2:
                owe(clock)
            case 4:
                clock.store.step("notices_sent", "shop", "job")
            case 5:
                clock._errands_until = 0.0
            case 6:
                wait_until(lambda: errands._process is None or errands._process.poll() is not None, 20)
        return len(seen) == 7

    monkeypatch.setattr(LineReader, "ended", ended)
    with open(os.devnull) as nothing:
        main.serve(clock, nothing, errands)
    assert seen == [False, False, True, True, True, True, False]


def beside(code: str, folder: Path) -> Companion:
    made = Companion("the sleeper", ["-c", code], folder / "sleeper", 600, 600)
    made.look(lambda: {"parent": processes.identity()})
    return made


def test_a_companion_that_rests_ends_and_is_started_again_by_a_look_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sleeper = beside("import sys; sys.stdin.read()", tmp_path)
    first = sleeper._process
    assert first
    sleeper.rest()
    assert not sleeper.send({"look": 1})
    assert first.wait(20) == 0
    sleeper._next_start = 0.0
    sleeper.look(lambda: {"parent": processes.identity()})
    assert sleeper._process not in (None, first)
    assert "ended" not in caplog.text
    sleeper.rest()
    wait_until(lambda: sleeper.rest() or sleeper._process is None, 20)  # type: ignore[func-returns-value]
    sleeper.rest()


@pytest.mark.parametrize("needed", [False, True])
def test_a_companion_that_rests_and_does_not_end_is_killed_after_ten_seconds_also_where_it_is_needed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed: bool
) -> None:
    sleeper = beside("import time; time.sleep(600)", tmp_path)
    process = sleeper._process
    assert process
    sleeper.rest()
    sleeper.rest()
    assert process.poll() is None
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 11)
    if needed:
        sleeper.look(lambda: {"parent": processes.identity()})
    else:
        sleeper.rest()
    assert process.wait(20) == -signal.SIGKILL
