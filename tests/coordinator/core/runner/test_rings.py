"""Jobs that would wait for themselves: refused by the step that closes the ring, or ended by the sweep, and named."""

from typing import Any

import pytest

from coordinator import Coordinator
from coordinator.core.jobs.options import Use
from tests.harness.hand_node import Puppet, Taken, sketch


def park(node: Puppet, taken: Taken, *ids: str | None) -> tuple[str, str]:
    """The verdict, and the state or the ring."""
    return node.park(taken, *ids)[:2]


def start(node: Puppet, job_id: str, keys: str | list[str], **options: Any) -> Taken:
    node.submit(keys, job_id=job_id, **options)
    taken = node.must_take()
    assert taken.id == job_id
    return taken


def end(node: Puppet) -> None:
    for record in node.store._client.scan_iter(node.store.key("job", "*")):
        job_id = record.decode().rpartition(":")[2]
        while not (job := node.lanes.job(job_id)).over:
            node.lanes.cancel(job_id)
            if job.state == "running":
                node.lapse(job_id)
                node.sweep()
    node.store.step("parked_take", "shop", 10)


def test_a_job_that_parks_on_one_behind_itself_is_refused_and_goes_on(node: Puppet) -> None:
    a = start(node, "A", "k")
    node.submit("k", job_id="C")
    for _ in range(2):
        assert park(node, a, None, "C") == ("deadlock", "A waits for its sub-result C; C waits behind A in lane 'k'")
    assert node.lanes.job("A").state == "running"
    assert node.finish(a, "failed").state == "failed"
    assert node.order() == ["C"]


@pytest.mark.parametrize("keys", [[], "k"], ids=["in no lane", "in a lane"])
def test_a_job_that_keeps_its_unit_and_parks_on_one_that_wants_it_is_refused_and_goes_on(
    node: Puppet, coordinator: Coordinator, keys: str | list[str]
) -> None:
    coordinator.quota("q", concurrency=1)
    parent = start(node, "A", "a", uses={"q": Use(1, until="end")})
    node.submit(keys, job_id="C", uses="q")
    ring = "A waits for its sub-result C; C waits for units of quota 'q' behind A"
    assert park(node, parent, "C") == ("deadlock", ring)
    assert node.lanes.job("A").state == "running"
    assert node.finish(parent, "failed").state == "failed"
    assert node.order() == ["C"]


def test_a_job_that_keeps_its_unit_and_parks_on_one_behind_another_that_wants_it_is_refused(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=1)
    parent = start(node, "A", "a", uses={"q": Use(1, until="end")})
    for name in "BC":
        node.submit([], job_id=name, uses="q")
    ring = ("A waits for its sub-result C", *(f"{one} waits for units of quota 'q' behind {other}" for one, other in
            ("CB", "BA")))  # fmt: skip
    assert park(node, parent, "C") == ("deadlock", "; ".join(ring))
    node.finish(parent)
    assert node.order() == ["B", "C"]


def test_a_ring_that_a_lowered_quota_closes_is_ended_by_the_sweep_which_gives_the_units_back(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=2)
    parent = start(node, "A", "a", uses={"q": Use(1, until="end")})
    other = start(node, "B", "b", uses="q")
    node.submit([], job_id="C", uses="q")
    assert park(node, parent, "C") == ("accepted", "parked")
    node.sweep()
    coordinator.quota("q", concurrency=1)
    node.finish(other)
    assert node.take() is None
    node.sweep()
    job = node.lanes.job("A")
    assert (job.state, job.error and job.error["type"]) == ("failed", "WouldDeadlock")
    assert (job.error or {})["message"].endswith("C waits for units of quota 'q' behind A")
    assert node.order() == ["C"]
    end(node)


def move_into_a_ring(node: Puppet, oldest: str) -> None:
    """D waits for E, A for F; F stands behind D, and C behind A. C, which stood behind E, is put before it."""
    taken = {name: start(node, name, name.lower()) for name in ("AD" if oldest == "A" else "DA")}
    start(node, "H", "x")
    node.submit("x", job_id="E")
    node.submit(["x", "a"], job_id="C")
    node.submit("d", job_id="F")
    assert park(node, taken["D"], "E") == ("accepted", "parked")
    assert park(node, taken["A"], "F") == ("accepted", "parked")
    node.sweep()
    assert [node.lanes.job(name).state for name in "AD"] == ["parked", "parked"]
    node.lanes.move("C", to="front")


@pytest.mark.parametrize(("oldest", "youngest"), ["AD", "DA"])
def test_a_ring_that_a_move_closes_is_ended_by_the_sweep_which_fails_the_youngest(
    node: Puppet, oldest: str, youngest: str
) -> None:
    move_into_a_ring(node, oldest)
    node.sweep()
    node.sweep()
    job = node.lanes.job(youngest)
    assert (job.state, job.error and job.error["type"]) == ("failed", "WouldDeadlock")
    ring = ("A waits for its sub-result F", "F waits behind D in lane 'd'", "D waits for its sub-result E",
            "E waits behind C in lane 'x'", "C waits behind A in lane 'a'")  # fmt: skip
    assert (job.error or {})["message"] == "it would wait for itself: " + "; ".join(ring)
    assert node.lanes.job(oldest).state == "parked"
    taken = node.store.step("parked_take", "shop", 10)
    assert [one[3] for one in taken if one[0] == youngest.encode()] == [2], "its sub-results are to be stopped"
    end(node)


def test_a_ring_that_a_greater_priority_closes_is_ended_by_the_sweep(node: Puppet) -> None:
    a = start(node, "A", "k")
    start(node, "H", "l")
    node.submit("l", job_id="C")
    assert park(node, a, "C") == ("accepted", "parked")
    node.submit(["k", "l"], job_id="B", priority=1)
    node.sweep()
    job = node.lanes.job("A")
    assert (job.state, job.error and job.error["type"]) == ("failed", "WouldDeadlock")
    end(node)


def test_a_sweep_follows_so_many_edges_and_the_next_one_goes_on(node: Puppet) -> None:
    """Each of the wide ones takes up what one sweep follows, and they come first."""
    start(node, "w", "w")
    node.lanes.submit_many([sketch("w", job_id=f"w{number}") for number in range(1100)])
    for number in range(3):
        wide = start(node, f"0{number}", f"wide{number}")
        assert park(node, wide, *(f"w{number}" for number in range(1100))) == ("accepted", "parked")
    move_into_a_ring(node, "A")
    states = []
    for _ in range(5):
        states.append(node.lanes.job("D").state)
        node.sweep()
    assert states[0] == "parked"
    assert node.lanes.job("D").state == "failed"
    end(node)


@pytest.mark.parametrize("use", [Use(1), Use("all")])
def test_a_job_whose_unit_comes_back_while_it_is_parked_may_park_on_one_that_wants_it(
    node: Puppet, coordinator: Coordinator, use: Use
) -> None:
    coordinator.quota("q", concurrency=1)
    parent = start(node, "A", "a", uses={"q": use})
    node.submit([], job_id="C", uses="q")
    assert park(node, parent, "C") == ("accepted", "parked")
    assert node.must_take().id == "C"
    end(node)
