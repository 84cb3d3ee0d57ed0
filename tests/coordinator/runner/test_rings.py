"""Jobs that would wait for themselves: refused by the step that closes the ring, or ended by the sweep, and named."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.harness.hand_node import Puppet, Taken, sketch


def park(node: Puppet, taken: Taken, *ids: str | None) -> tuple[str, str]:
    """The verdict, and the state or the ring."""
    handles = json.dumps({"ids": ids, "one": False})
    found = node.store.step(
        "job_finish", taken.id, taken.token, "parked", handles, 0, "", "", "", "", node.name, taken.runner, "",
        node.ttl,
    )  # fmt: skip
    return found[0].decode(), found[1].decode()


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


def test_a_job_that_parks_on_itself_is_refused(node: Puppet) -> None:
    a = start(node, "A", "k")
    assert park(node, a, "A") == ("deadlock", "A waits for its sub-result A")
    node.finish(a)


def test_a_ring_over_two_parents_is_refused_where_it_closes(node: Puppet) -> None:
    a = start(node, "A", "a")
    b = start(node, "B", "b")
    assert park(node, a, "B") == ("accepted", "parked")
    node.submit("a", job_id="C")
    ring = "B waits for its sub-result C; C waits behind A in lane 'a'; A waits for its sub-result B"
    assert park(node, b, "C") == ("deadlock", ring)
    end(node)


@pytest.mark.parametrize("first", ["A", "D"])
def test_a_ring_over_two_lanes_is_refused_where_it_closes(node: Puppet, first: str) -> None:
    both = {"A": (start(node, "A", "a"), "C"), "D": (start(node, "D", "d"), "E")}
    node.submit("d", job_id="C")
    node.submit("a", job_id="E")
    assert park(node, *both.pop(first)) == ("accepted", "parked")
    ((name, (taken, child)),) = both.items()
    verdict, ring = park(node, taken, child)
    assert verdict == "deadlock"
    assert ring.startswith(f"{name} waits for its sub-result {child}; {child} waits behind {first} in lane ")
    end(node)


def test_a_ring_through_one_that_waits_in_two_lanes_is_found_however_long_its_line(node: Puppet) -> None:
    a = start(node, "A", "a")
    b = start(node, "B", "b")
    node.submit(["a", "b"], job_id="AB")
    for number in range(50):
        node.submit("b", job_id=f"n{number}")
    node.submit("b", job_id="C")
    node.finish(b)
    verdict, ring = park(node, a, "C")
    assert verdict == "deadlock"
    assert ring.startswith("A waits for its sub-result C; C waits behind AB in lane 'b'; AB waits behind A in lane 'a'")
    end(node)


def test_what_can_still_end_is_waited_for(node: Puppet) -> None:
    """A child within the limit of its parent's lane, one that is over, an ordinary task, one behind a running job."""
    node.lanes.set_limit("k", 2)
    a = start(node, "A", "k")
    start(node, "other", "o")
    node.submit("k", job_id="beside")
    node.submit("o", job_id="behind")
    node.submit("e", job_id="ended")
    node.lanes.cancel("ended")
    assert park(node, a, "beside", "behind", "ended", "a task") == ("accepted", "parked")
    end(node)
    node.lanes.set_limit("k", 1)


def test_in_a_lane_with_a_limit_all_that_stand_before_must_be_stuck(node: Puppet) -> None:
    node.lanes.set_limit("k", 2)
    a = start(node, "A", "k")
    b = start(node, "B", "k")
    node.submit("k", job_id="C")
    assert park(node, a, "C") == ("accepted", "parked"), "B may end"
    assert park(node, b, "C")[0] == "deadlock"
    end(node)
    node.lanes.set_limit("k", 1)


def test_one_that_stands_in_no_line_yet_will_stand_behind_those_that_are_started(node: Puppet) -> None:
    a = start(node, "A", "k")
    node.submit("k", job_id="later", not_before=datetime.now(UTC) + timedelta(hours=1))
    assert park(node, a, "later")[0] == "deadlock"
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
