"""When a node starts maintenance for its app, and when it lets it end."""

import os
import signal
import time
from pathlib import Path

import pytest

from coordinator.core.fleet import processes
from coordinator.core.fleet.companion import Companion, LineReader
from coordinator.core.supervisor import __main__ as main
from coordinator.core.supervisor.supervisor import Supervisor
from tests.coordinator.core.supervisor.test_supervisor import supervisor_of
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

ECHO = "import sys; [print(line, end='', flush=True) for line in sys.stdin]"


@pytest.fixture
def supervisor(redis_server: RedisServer, prefix: str) -> Supervisor:
    return supervisor_of(redis_server, prefix)


@pytest.fixture
def node(supervisor: Supervisor) -> Puppet:
    return up(supervisor, "two")


def up(supervisor: Supervisor, name: str) -> Puppet:
    node = Puppet(supervisor.store, name=name)
    node.up()
    return node


def is_due(node: Puppet) -> bool:
    beat = node.nodes.beat(node.name, node.incarnation, {})
    assert beat
    return beat.maintenance


def owe(supervisor: Supervisor, ms: int = 0) -> None:
    """A result, for so long."""
    supervisor.store._client.zadd(supervisor.store.key("unsent", "shop"), {"job": supervisor.store.now() - ms})


def pass_time(supervisor: Supervisor, node: Puppet, ms: int) -> None:
    """For the nodes that do maintenance, and for what waits."""
    client, key = supervisor.store._client, supervisor.store.key
    for member in client.zrange(key("errands", "shop"), 0, -1):
        client.zincrby(key("errands", "shop"), -ms, member)
    if since := client.get(key("waits")):
        client.set(key("waits"), int(since) - ms)


def test_one_node_does_what_is_due_and_others_help_after_four_seconds_twelve_and_twenty_eight(
    supervisor: Supervisor, node: Puppet
) -> None:
    three = up(supervisor, "three")
    assert not is_due(node)
    owe(supervisor)
    assert [is_due(node), is_due(three), is_due(node)] == [True, False, True]
    owe(supervisor, 3_900)
    assert [is_due(node), is_due(three)] == [True, False]
    owe(supervisor, 4_001)
    supervisor.step()
    assert [is_due(node), is_due(three), supervisor.maintenance_due] == [True, False, True], "the first that asks"
    owe(supervisor, 11_900)
    assert not is_due(three)
    owe(supervisor, 12_001)
    assert is_due(three)
    four = up(supervisor, "four")
    owe(supervisor, 27_900)
    assert not is_due(four), "where a backend is away, many do not help"
    owe(supervisor, 28_001)
    assert is_due(four)


def test_whoever_did_nothing_for_a_minute_is_no_longer_the_one(supervisor: Supervisor, node: Puppet) -> None:
    three = up(supervisor, "three")
    owe(supervisor)
    assert is_due(node)
    pass_time(supervisor, node, 50_000)
    assert not is_due(three)
    assert is_due(node)
    pass_time(supervisor, node, 50_000)
    assert not is_due(three), "its last work was a moment ago"
    pass_time(supervisor, node, 61_000)
    assert [is_due(three), is_due(node)] == [True, False]


def test_that_jobs_wait_is_due_after_half_a_minute_unless_somebody_has_looked_or_none_waited_in_between(
    supervisor: Supervisor, node: Puppet
) -> None:
    submitted = [node.submit("k", job_id=name) for name in ("first", "second")]
    assert not is_due(node)
    pass_time(supervisor, node, 29_000)
    assert not is_due(node)
    pass_time(supervisor, node, 1_000)
    supervisor.store.read("SET", supervisor.store.key("looked"), 1)
    assert not is_due(node)
    supervisor.store.read("DEL", supervisor.store.key("looked"))
    assert is_due(node)
    for _ in submitted:
        node.finish(node.must_take())
    assert not is_due(node)
    node.submit("k")
    assert not is_due(node), "it has begun to wait"


def test_a_node_keeps_its_maintenance_for_a_minute_after_its_last_work_and_one_with_plugins_for_ever(
    supervisor: Supervisor, node: Puppet, monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer, prefix: str
) -> None:
    supervisor.step()
    assert not supervisor.needs_maintenance
    owe(supervisor)
    supervisor.step()
    assert supervisor.needs_maintenance
    supervisor.store.step("notices_sent", "shop", "job")
    supervisor.step()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 59)
    assert supervisor.needs_maintenance
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    assert not supervisor.needs_maintenance
    object.__setattr__(supervisor.config, "plugins", True)
    assert supervisor.needs_maintenance


def test_maintenance_begins_once_it_is_needed_and_ends_once_it_is_not(
    supervisor: Supervisor, node: Puppet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    maintenance = Companion("maintenance", ["-c", ECHO], tmp_path / "maintenance", 600, 600)
    seen: list[bool] = []

    def ended(_: LineReader, seconds: float) -> bool:
        seen.append(maintenance._process is not None)
        match len(seen):
            case 2:
                owe(supervisor)
            case 4:
                supervisor.store.step("notices_sent", "shop", "job")
            case 5:
                supervisor._maintenance_until = 0.0
            case 6:
                wait_until(lambda: maintenance._process is None or maintenance._process.poll() is not None)
        return len(seen) == 7

    monkeypatch.setattr(LineReader, "ended", ended)
    with open(os.devnull) as nothing:
        main.serve(supervisor, nothing, maintenance)
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
    assert first.wait(60) == 0
    sleeper._next_start = 0.0
    sleeper.look(lambda: {"parent": processes.identity()})
    assert sleeper._process not in (None, first)
    assert "ended" not in caplog.text
    sleeper.rest()
    wait_until(lambda: sleeper.rest() or sleeper._process is None)  # type: ignore[func-returns-value]
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
    assert process.wait(60) == -signal.SIGKILL
