"""Submits with an instance: one job among all does it, once, and the submits that lose learn who has it."""

import json
import threading
from typing import Any

import pytest

from coordinator import Coordinator, InvalidJob, StoreUnavailable, Submission
from coordinator.core.jobs.instances import lane_of
from tests.coordinator.conftest import ClientAt
from tests.harness.hand_node import Puppet, sketch
from tests.harness.proxy import Proxy
from tests.harness.waiting import wait_until

LANE = lane_of("report", "a")


@pytest.fixture
def node(coordinator: Coordinator) -> Puppet:
    puppet = Puppet(coordinator.store, "cn1@host")
    puppet.up()
    return puppet


def submit(node: Puppet, job_id: str, instance: object = "a", **options: Any) -> Submission:
    return node.submit("report", job_id=job_id, instance=instance, **options)


def test_the_first_wins_and_a_second_loses_and_learns_who_has_it(node: Puppet, coordinator: Coordinator) -> None:
    first = submit(node, "one")
    assert (first.outcome, first.grab.won, first.grab.state, first.accepted) == ("started", True, "running", True)
    lost = submit(node, "two")
    assert (lost.outcome, lost.grab.won, lost.grab.state, lost.id) == ("lost", False, "incomplete", "one")
    assert not lost.accepted
    assert lost.grab.winner
    assert (lost.grab.winner.identifier, lost.grab.winner.node) == ("one", "")
    taken = node.must_take(runner="4711.99.abc")
    winner = submit(node, "three").grab.winner
    assert winner
    assert tuple(winner) == ("one", "host", 4711, "cn1@host")
    (seen,) = coordinator.grabs("report")
    assert (seen.state, seen.attempt, seen.fence, seen.instance) == ("running", 1, taken.fence, "a")
    node.finish(taken)
    assert node.order() == []


def test_a_release_cancels_the_job_that_has_the_instance_and_the_next_submit_wins(
    node: Puppet, coordinator: Coordinator
) -> None:
    submit(node, "one")
    first = node.must_take()
    assert coordinator.release_grab("report", "a", why="it hangs", by="ann") == "one"
    assert submit(node, "two").outcome == "lost", "its process is stopped first"
    node.finish(first)
    assert coordinator.job("one").state == "cancelled"
    assert submit(node, "two").grab.won
    (seen,) = coordinator.grabs("report")
    assert (seen.attempt, seen.earlier[0].state, seen.earlier[0].value) == (
        2, "failed", {"type": "Cancelled", "message": "it hangs", "by": "ann"},
    )  # fmt: skip
    assert coordinator.release_grab("report", "a", why="it waits") == "two"
    assert coordinator.job("two").state == "cancelled"


def test_a_lost_reply_to_a_submit_does_not_make_it_lose(proxy: Proxy, client_at: ClientAt, node: Puppet) -> None:
    behind = client_at(proxy.url(0), timeout=0.5)
    assert behind.counts()["created"] == 0
    proxy.lose_reply(b"job_submit")
    request = sketch("report", job_id="one", instance="a")
    with pytest.raises(StoreUnavailable):
        behind._core.submit(request)
    assert proxy.lost.is_set()
    assert (told := behind._core.submit(request)).grab.won, told
    assert node.order() == ["one"]


def test_a_long_result_is_whole_in_the_record_of_its_instance(node: Puppet, coordinator: Coordinator) -> None:
    submit(node, "one")
    node.finish(node.must_take(), detail=json.dumps("x" * 100))
    assert coordinator.grab("report", "a", "server 1").result == "x" * 100


def test_jobs_and_processes_compete_for_the_same_instance(
    node: Puppet, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.core.grabs.grab._POLL", 60.0)
    submit(node, "one")
    lost = coordinator.grab("report", "a", "server 1")
    assert (lost.won, lost.winner and lost.winner.identifier) == (False, "one")
    heard: list[str] = []
    thread = threading.Thread(target=lambda: heard.append(lost.wait(60)))
    thread.start()
    channel = coordinator.store.key("grabbed", LANE)
    wait_until(lambda: coordinator.store.read("PUBSUB NUMSUB", channel)[0][1] == 1)
    node.order()
    thread.join(20)
    assert (heard, lost.result) == (["complete"], "detail"), "the poll alone takes a minute"
    with coordinator.grab("report", "b", "server 1") as grab:
        lost_to = submit(node, "two", "b")
        assert (lost_to.outcome, lost_to.grab.winner) == ("lost", grab.winner)
    assert submit(node, "two", "b").grab.state == "complete"
    dead = coordinator.grab("report", "c", "server 1", ttl=0.2)
    assert dead._lease
    dead._grabber.renewer.drop(dead._lease)
    wait_until(lambda: submit(node, "three", "c").grab.won)
    assert node.order() == ["three"]
    assert coordinator.grabs("report")[0].attempt == 2


def test_instances_wait_for_nobody_and_have_the_turn_of_their_keys_group(
    node: Puppet, coordinator: Coordinator
) -> None:
    node.submit("report", job_id="plain")
    for instance in (1, 2, "x/y"):
        assert submit(node, f"of {instance}", instance).outcome == "started"
    assert sorted(node.order()) == ["of 1", "of 2", "of x/y", "plain"]
    node.submit("a/report", job_id="grouped", instance="x/y")
    store = coordinator.store
    assert store._client.zrange(store.key("ready", "shop\ncelery"), 0, -1) == [b"a"]
    node.order()


def test_many_are_submitted_in_one_round_trip_and_each_learns_its_own(node: Puppet) -> None:
    asked = [sketch("report", job_id=f"j{number}", instance=number % 2) for number in range(4)]
    told = node.lanes.submit_many(asked)
    assert [(one.outcome, one.grab.won, one.id) for one in told] == [
        ("started", True, "j0"), ("started", True, "j1"), ("lost", False, "j0"), ("lost", False, "j1"),
    ]  # fmt: skip
    assert sorted(node.order()) == ["j0", "j1"]


def test_what_makes_no_sense_with_an_instance_is_refused() -> None:
    for options, named in (
        ({"keys": ["a", "b"]}, "one key, not to 2"),
        ({"instance": ""}, "the instance of a grab"),
        ({"keys": "k" * 201}, "the key of a grab"),
        ({"when_busy": "skip"}, "no when_busy"),
        ({"max_waiting": 1}, "no max_waiting"),
        ({"keep_instance": 0}, "keep_instance is seconds above 0"),
        ({"keep_instance": 1, "instance": None}, "keep_instance is for a submit with an instance"),
    ):
        given: dict[str, Any] = {"keys": "report", "instance": "a"} | options
        with pytest.raises(InvalidJob, match=named):
            sketch(given.pop("keys"), **given)
