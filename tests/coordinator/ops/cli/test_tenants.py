"""The command that says which tenant floods."""

import pytest

from coordinator import Coordinator
from coordinator.ops.search import tenants
from tests.harness.command import Call, loaded, told
from tests.harness.hand_node import Puppet, sketch


@pytest.fixture
def crowd(node: Puppet, coordinator: Coordinator) -> Coordinator:
    coordinator.quota("tenant/acme", concurrency=3, why="so")
    node.submit("acme/1", uses="tenant/acme")
    node.must_take()
    node.lanes.submit_many(map(sketch, ["acme/1", "acme/2", "beta/1", "gamma/1"]))
    return coordinator


def test_tenants_are_listed_with_what_waits_and_runs_and_the_rest_is_told_below(call: Call, crowd: Coordinator) -> None:
    done = call("tenants", "--most", "2")
    heads, first, second = done.stdout.splitlines()
    assert heads.split() == ["KEYS", "WAITING", "RUNNING", "FAILED", "SLOTS", "LANES", "PAUSED", "WEIGHT", "QUOTAS"]
    assert first.split() == ["acme/", "2", "1", "0", "25", "%", "2", "-", "1.0", "tenant/acme", "1", "of", "3"]
    assert second.split()[:3] == ["beta/", "1", "0"]
    more, total = done.stderr.splitlines()
    assert more == "and 1 more: --most, or a PREFIX"
    assert total.startswith("in all 4 waiting in 4 lanes, 1 running, 0 failed since 20")
    assert [line.split()[0] for line in told(call("tenants", "acme/", "--sort", "prefix")).splitlines()] == [
        "KEYS", "acme/1", "acme/2",
    ]  # fmt: skip


def test_programs_get_all_that_python_has(call: Call, crowd: Coordinator) -> None:
    found = loaded(call("tenants", "--json"))
    assert (found["waiting"], found["complete"], found["more"], found["after"]) == (4, True, 0, None)
    first = found["tenants"][0]
    assert (first["prefix"], first["kind"], first["running"], first["share"]) == ("acme/", "prefix", 1, 0.25)


def test_a_look_with_too_few_seconds_says_so_and_one_without_is_whole(
    call: Call, crowd: Coordinator, node: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "_PORTION", 100)
    node.lanes.submit_many(sketch(f"t{number}/x") for number in range(300))
    short = call("tenants", "--seconds", "0")
    assert "each number is at least that; without --seconds it is exact" in short.stderr
    assert "in all at least 304 waiting in 304 lanes" in short.stderr
    whole = call("tenants")
    assert "at least" not in whole.stderr
    assert "and 253 more" in whole.stderr


def test_a_wrong_order_is_refused(call: Call) -> None:
    done = call("tenants", "--sort", "size")
    assert (done.exit_code, "'size' is not one of 'waiting', 'running'" in done.stderr) == (2, True)
