"""A known finding is acknowledged: with who, why and until when."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordinator import Coordinator, InvalidJob, StoreUnavailable
from coordinator.core.finding import Finding
from tests.coordinator.conftest import ClientAt
from tests.harness.command import Call, told
from tests.harness.hand_node import Puppet
from tests.harness.proxy import Proxy


@pytest.fixture
def lost(node: Puppet, coordinator: Coordinator) -> Coordinator:
    """Jobs wait for two tasks that no node has, and one node has lost its queue."""
    for number in range(2):
        node.submit(f"k{number}", job_id=f"j{number}", task=f"shop.gone{number}")
    return coordinator


def counted(coordinator: Coordinator, code: str = "task.unknown") -> list[str]:
    return [one.thing for one in coordinator.doctor() if one.code == code and not one.acknowledged]


def known(coordinator: Coordinator) -> list[Finding]:
    return [one for one in coordinator.doctor() if one.acknowledged]


def let_go(coordinator: Coordinator) -> None:
    for number in range(2):
        coordinator.cancel(f"j{number}")


def test_an_acknowledged_finding_stands_apart_with_who_why_and_until_when(lost: Coordinator) -> None:
    until = lost.ack("task.unknown", "task shop.gone0", until="2h", why="the next deploy has it", by="ann")
    assert timedelta(hours=1.9) < until - datetime.now(UTC) < timedelta(hours=2.1)
    assert counted(lost) == ["task shop.gone1"], "another thing of the same code counts"
    [one] = known(lost)
    assert one == lost.doctor()[-1], "they stand at the end"
    assert one.acknowledged is not None
    assert (one.acknowledged.by, one.acknowledged.why) == ("ann", "the next deploy has it")
    assert abs(one.acknowledged.until - until) < timedelta(milliseconds=1)
    lost.ack("task.unknown", until="1d", why="all of them", by="bob")
    assert counted(lost) == []
    assert {one.acknowledged and one.acknowledged.by for one in known(lost)} == {"ann", "bob"}
    assert lost.unack("task.unknown")
    assert not lost.unack("task.unknown")
    assert counted(lost) == ["task shop.gone1"]
    let_go(lost)


def test_it_ends_by_itself_and_leaves_nothing(lost: Coordinator) -> None:
    client, key = lost.store._client, lost.store.key("acknowledged")
    for until, most in ((60, 60_000), (7200, 7_200_000), (600, 7_200_000)):
        lost.ack("task.unknown", f"task shop.gone{until == 600:d}", until=until, why="so")
        assert most - 60_000 < client.pttl(key) <= most, "the key lasts as long as the last of them"
    note = json.loads(client.hget(key, "task.unknown task shop.gone0"))
    past = json.dumps(note | {"until": lost.store.clock().wall - 1})
    client.hset(key, "task.unknown task shop.gone0", past)
    assert counted(lost) == ["task shop.gone0"]
    client.hset(key, "damaged", "no json")
    assert counted(lost) == ["task shop.gone0"]
    lost.ack("task.unknown", "task shop.gone1", until="1h", why="so")
    assert client.hkeys(key) == [b"task.unknown task shop.gone1", b"damaged"], "one that has ended goes with the next"
    client.delete(key)
    let_go(lost)


def test_a_finding_that_comes_again_is_still_known(lost: Coordinator) -> None:
    lost.ack("task.unknown", "task shop.gone0", until="2h", why="it flaps")
    lost.cancel("j0")
    assert [one.thing for one in lost.doctor() if one.code == "task.unknown"] == ["task shop.gone1"]
    Puppet(lost.store).submit("k0", job_id="j2", task="shop.gone0")
    assert counted(lost) == ["task shop.gone1"]
    lost.cancel("j2")
    let_go(lost)


@pytest.mark.parametrize(
    ("code", "thing", "until", "why"),
    [
        ("task.unkown", "", "2h", "doctor finds no 'task.unkown' now"),
        ("task.unknown", "task shop.gone7", "2h", "finds no 'task.unknown' about 'task shop.gone7' now"),
        ("task.unknown", "", "31d", "until '31d': give a time to come, within 30 days"),
        ("task.unknown", "", -5, "until -5: give a time to come"),
        ("task.unknown", "", "2020-01-01T00:00:00Z", "give a time to come"),
        ("task.unknown", "", "", "until '': give a time to come"),
        ("task.unknown", "", "soon", "until 'soon' is neither seconds nor a time"),
    ],
)
def test_what_is_not_there_or_lasts_too_long_is_refused(
    lost: Coordinator, code: str, thing: str, until: Any, why: str
) -> None:
    with pytest.raises(InvalidJob, match=why):
        lost.ack(code, thing, until=until, why="so")
    assert known(lost) == []
    let_go(lost)


def test_the_commands_list_it_apart_and_their_status_ignores_it(lost: Coordinator, call: Call) -> None:
    assert call("doctor").exit_code == 2
    said = told(call("ack", "task.unknown", "--until", "2h", "--why", "the next deploy has them", "--by", "ann"))
    assert said.startswith("task.unknown is acknowledged until 20")
    shown = call("doctor")
    assert "2 acknowledged by ann until 20" in shown.stdout
    assert "  error [task.unknown] (task shop.gone0) 1 job waits for a task that no node has (the next" in shown.stdout
    assert "\n    fix" not in shown.stdout.partition("acknowledged")[2]
    assert shown.exit_code == int(any(line.startswith("warning") for line in shown.stdout.splitlines()))
    listed = json.loads(call("doctor", "--json").stdout)["findings"]
    assert [one["acknowledged"]["by"] for one in listed if one["code"] == "task.unknown"] == ["ann", "ann"]
    assert all(one["acknowledged"] is None for one in listed if one["code"] != "task.unknown")
    assert "2 acknowledged by ann until 20" in call("status").stderr
    assert told(call("unack", "task.unknown", "--why", "so")).startswith("task.unknown counts again")
    assert call("doctor").exit_code == 2
    assert call("ack", "task.nope", "--why", "so").exit_code == 2
    let_go(lost)


def test_where_redis_is_away_nothing_counts_as_acknowledged(
    lost: Coordinator, proxy: Proxy, client_at: ClientAt
) -> None:
    far = client_at(proxy.url(), timeout=2)
    far.ack("task.unknown", until="2h", why="so")
    proxy.cut()
    with pytest.raises(StoreUnavailable):
        far.ack("task.unknown", until="2h", why="so")
    assert [(one.code, one.acknowledged) for one in far.doctor()] == [("redis.away", None)]
    proxy.heal()
    let_go(lost)
