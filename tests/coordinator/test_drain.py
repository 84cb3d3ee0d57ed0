"""A node is taken out: nothing new for it, what runs there ends or is handed over, and no loss is counted."""

import signal
from typing import Any

import pytest

from coordinator import Coordinator, InvalidJob
from tests.fleet import Fleet, Worker
from tests.puppet import Puppet
from tests.waiting import wait_until

SHORT: dict[str, Any] = {"lock_ttl": 2, "node_ttl": 1.5, "sweep": 0.1, "heartbeat": 0.3}


def pair(coordinator: Coordinator) -> tuple[Puppet, Puppet]:
    one, two = Puppet(coordinator.store, "one"), Puppet(coordinator.store, "two")
    one.up()
    two.up()
    return one, two


def begun_on(fleet: Fleet, job_ids: list[str], worker: Worker) -> set[str]:
    return {job_id for job_id in job_ids if fleet.coordinator.job(job_id).node == worker.name}


def test_a_drained_node_is_neither_rung_nor_given_anything_until_it_is_undrained(coordinator: Coordinator) -> None:
    one, two = pair(coordinator)
    assert coordinator.drain("two", why="disk", by="ann") is True
    assert coordinator.drain("two", why="disk", by="ann") is False
    for i in range(6):
        one.submit(f"k{i}")
    assert (len(one.rung()), two.rung(), two.take()) == (4, [], None)
    two.nodes.beat("two", "a", {"ordinary": 0})
    one.sweep()
    assert two.rung() == []
    shown = {node.name: node for node in coordinator.nodes()}
    assert (shown["one"].draining, shown["two"].draining, shown["two"].score) == (False, True, None)
    told = shown["two"].drained or {}
    assert (told["why"], told["by"]) == ("disk", "ann")
    assert coordinator.undrain("two") is True
    assert len(two.rung()) > 0
    assert coordinator.undrain("two") is False
    assert len(two.order()) == 6


def test_what_a_drained_node_has_goes_on_there_and_it_takes_no_more(coordinator: Coordinator) -> None:
    one, two = pair(coordinator)
    one.submit("a", job_id="had")
    had = one.must_take()
    one.submit("a", job_id="behind")
    coordinator.drain("one", why="disk")
    assert one.renew(had) == [True]
    assert one.finish(had, next_token="next") == ("accepted", "succeeded", None)
    assert two.order() == ["behind"]


def test_a_name_stays_drained_over_its_nodes_lives(coordinator: Coordinator) -> None:
    coordinator.drain("one", why="disk")
    node = Puppet(coordinator.store, "one")
    for incarnation in "ab":
        node.up(incarnation=incarnation)
        node.submit(f"k{incarnation}")
        assert (node.rung(), node.take()) == ([], None)
        node.nodes.leave("one", incarnation)
    node.up(incarnation="c")
    coordinator.undrain("one")
    assert len(node.order()) == 2


def test_a_node_that_ends_takes_nothing_more_whatever_an_operator_undrains(node: Puppet) -> None:
    node.nodes.beat("one", "a", {"ending": 1})
    node.lanes.drain("one", True)
    node.lanes.drain("one", False)
    node.submit("a", job_id="j")
    assert (node.rung(), node.take()) == ([], None)
    node.nodes.leave("one", "a")
    node.up(incarnation="b")
    assert node.order() == ["j"]


def test_a_job_handed_over_goes_before_what_waits_and_counts_neither_loss_nor_attempt(coordinator: Coordinator) -> None:
    one, two = pair(coordinator)
    one.submit("a", job_id="j", max_losses=0, max_attempts=1)
    taken = one.must_take()
    one.submit("b", job_id="other")
    coordinator.drain("one")
    assert one.lose(taken, "handed") == "ready"
    again = two.must_take()
    assert (again.id, again.attempt, again.losses) == ("j", 2, 0)
    assert one.finish(taken).verdict == "lost"
    assert two.finish(again, "raised").state == "failed"
    assert coordinator.counts()["losses"] == 0
    assert two.order() == ["other"]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 513])
def test_a_name_that_no_node_can_have_is_refused(coordinator: Coordinator, name: str) -> None:
    for call in (coordinator.drain, coordinator.undrain):
        with pytest.raises(InvalidJob):
            call(name)


@pytest.mark.parametrize("how", ["operator", "SIGTERM"])
def test_a_drain_under_load_counts_no_loss_and_runs_no_job_twice(fleet: Fleet, how: str) -> None:
    fleet.configure(**SHORT)
    first, second = fleet.worker("first"), fleet.worker("second")
    work, coordinator = fleet.shop.work, fleet.coordinator
    asked = [(f"k{i % 20}", work.s(f"{i:03}", 0.05)) for i in range(160)]
    ids = [one.job_id for one in coordinator.submit_many(asked)]
    wait_until(lambda: len(fleet.stamps(what="end")) > 20, 20, fleet.logs)
    if how == "operator":
        assert coordinator.drain(first.name, why="disk")
        wait_until(lambda: {node.name: node.running for node in coordinator.nodes()}[first.name] == 0, 10)
        (found,) = [node for node in coordinator.nodes() if node.name == first.name]
        assert (found.draining, found.score, found.rung) == (True, None, 0)
    else:
        first.kill(signal.SIGTERM)
        assert first.process.wait(30) == 0
    before = begun_on(fleet, ids, first)
    jobs = [coordinator.wait(job_id, 40) for job_id in ids]
    assert {(job.state, job.attempt, job.losses) for job in jobs} == {("succeeded", 1, 0)}
    assert begun_on(fleet, ids, first) == before
    assert 0 < len(before) < len(ids)
    assert sorted(stamp.name for stamp in fleet.stamps(what="begin")) == [f"{i:03}" for i in range(160)]
    assert coordinator.counts()["losses"] == 0
    if how == "operator":
        second.kill(signal.SIGTERM)
        second.process.wait(30)
        left = coordinator.submit("k", work.s("left")).job_id
        assert coordinator.undrain(first.name)
        assert coordinator.wait(left, 20).node == first.name


def test_a_worker_told_to_end_ends_its_long_job_takes_nothing_new_and_is_seen_until_then(fleet: Fleet) -> None:
    fleet.configure(**SHORT)
    worker = fleet.worker("first", app="depot")
    coordinator, depot = fleet.depot.coordinator, fleet.depot
    long = coordinator.submit("ledger", depot.held.s("long")).job_id
    fleet.begun("long")
    worker.kill(signal.SIGTERM)
    wait_until(lambda: [node.name for node in coordinator.nodes() if node.draining] == [worker.name], 10, fleet.logs)
    late = [coordinator.submit(f"k{i}", depot.work.s(f"late{i}")).job_id for i in range(4)]
    beats = 3 * SHORT["node_ttl"]
    began, *_ = coordinator.store.client.time()
    wait_until(lambda: coordinator.store.client.time()[0] - began > beats, 20)
    assert [(node.name, node.draining, node.running) for node in coordinator.nodes()] == [(worker.name, True, 1)]
    assert {coordinator.job(job_id).state for job_id in late} == {"ready"}
    assert coordinator.why(late[0])[0].endswith("takes new work: it drains")
    fleet.go("long")
    job = coordinator.wait(long, 20)
    assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0)
    assert worker.process.wait(30) == 0
    wait_until(lambda: fleet.nodes() == [], 10)
    assert fleet.stamps("late0") == []
    fleet.worker("next", app="depot")
    assert {coordinator.wait(job_id, 20).state for job_id in late} == {"succeeded"}


@pytest.mark.parametrize("how", ["operator", "SIGTERM"])
def test_what_runs_for_too_long_on_a_draining_node_goes_on_elsewhere_without_a_loss(fleet: Fleet, how: str) -> None:
    fleet.configure(**SHORT, drain_timeout=1)
    first = fleet.worker("first", app="depot")
    coordinator, depot = fleet.depot.coordinator, fleet.depot
    long = coordinator.submit("ledger", depot.held.s("long"), max_losses=0).job_id
    behind = coordinator.submit("ledger", depot.work.s("behind")).job_id
    fleet.begun("long")
    second = fleet.worker("second", app="depot")
    if how == "operator":
        coordinator.drain(first.name, why="disk")
    else:
        first.kill(signal.SIGTERM)
    wait_until(lambda: len(fleet.stamps("long", "begin")) == 2, 20, fleet.logs)
    once, again = fleet.stamps("long", "begin")
    assert (again.at - once.at) / 1e6 > 1
    fleet.go("long")
    job = coordinator.wait(long, 20)
    assert (job.state, job.node, job.attempt, job.losses) == ("succeeded", second.name, 2, 0)
    assert len(fleet.stamps("long", "end")) == 1
    assert coordinator.wait(behind, 20).node == second.name
    assert coordinator.counts()["losses"] == 0
    if how == "SIGTERM":
        assert first.process.wait(30) == 0
    else:
        assert first.process.poll() is None
        coordinator.undrain(first.name)


def test_a_drained_name_stays_drained_when_its_worker_starts_again(fleet: Fleet) -> None:
    coordinator = fleet.coordinator
    coordinator.drain("one@test", why="disk")
    worker = fleet.worker("one")
    job_id = coordinator.submit("a", fleet.shop.add.s(1, 2)).job_id
    worker.kill(signal.SIGTERM)
    worker.process.wait(30)
    fleet.worker("one")
    assert [node.draining for node in coordinator.nodes()] == [True]
    assert coordinator.job(job_id).state == "ready"
    coordinator.undrain("one@test")
    assert coordinator.wait(job_id, 20).result == 3
