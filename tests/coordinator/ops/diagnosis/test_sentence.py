"""The sentences of why: what is wrong first, one fact a clause, names in front of ids."""

import json
import re
from datetime import timedelta

import pytest

from coordinator import Coordinator
from coordinator.ops.diagnosis.words import spent_text
from tests.coordinator.scheduler.beats import Beats, entry, run, source
from tests.harness.hand_node import Puppet

NO_PAYMENT = json.dumps({"type": "ValueError", "message": "order 42 has no payment"})


def refund_is_held(node: Puppet) -> None:
    """Four more jobs stand behind it."""
    node.submit("order/42", job_id="order-42-refund", on_failure="hold")
    node.finish(node.must_take(), "failed", detail=NO_PAYMENT)
    for number in range(3):
        node.submit("order/42", job_id=f"order-42-{number}")
    node.submit(["order/42", "customer/7"], job_id="order-42-both")


def let_go(coordinator: Coordinator) -> None:
    for job in coordinator.jobs(state=["held", "waiting", "ready", "running"]).jobs:
        coordinator.cancel(job.id)


def test_a_lane_that_a_failure_stopped_says_so_first_and_then_where_the_job_stands(
    node: Puppet, coordinator: Coordinator
) -> None:
    refund_is_held(node)
    failed = r"order-42-refund failed \d s ago \(ValueError: order 42 has no payment\) and waits for you"
    stopped = rf"Lane order/42 is stopped: {failed} to retry or cancel it\."
    sentence = coordinator.why("order-42-both").sentence
    assert re.fullmatch(rf"{stopped} order-42-both is fifth in line\.", sentence), sentence
    own = coordinator.why("order-42-refund").sentence
    assert re.fullmatch(rf"{failed} to retry or cancel it\.", own), own
    lane = coordinator.why(key="order/42").sentence
    assert re.fullmatch(rf"{stopped} Lane order/42 is held by .*; 4 jobs in line behind it\.", lane), lane
    let_go(coordinator)


def test_a_job_that_no_node_has_the_task_of_says_what_to_start(node: Puppet, coordinator: Coordinator) -> None:
    for name in ("two", "three"):
        Puppet(coordinator.store, name).up()
    node.submit("a", job_id="vanished", task="shop.vanished")
    node.submit("a", job_id="next")
    said = (
        "No node has the task shop.vanished (3 of 3 asked). Start a worker that has it, or give its jobs another task."
    )
    assert coordinator.why("vanished").sentence == said
    assert coordinator.why("next").sentence == f"{said} next is second in lane a, behind vanished."
    node.submit("b", job_id="label", needs=["gpu"])
    assert coordinator.why("label").sentence == (
        "No node has the label gpu (3 of 3 asked). Start a worker that has it."
    )
    let_go(coordinator)


def test_a_lane_in_which_nothing_runs_says_where_its_first_job_is_stopped(
    node: Puppet, coordinator: Coordinator
) -> None:
    node.submit("order/42", job_id="order-42-refund", on_failure="hold")
    node.finish(node.must_take(), "failed", detail=NO_PAYMENT)
    node.submit(["customer/7", "order/42"], job_id="order-42-both")
    assert coordinator.why(key="customer/7").sentence == (
        "Nothing runs in customer/7: its first job, order-42-both, also needs order/42, where order-42-refund failed "
        "and waits for you."
    )
    node.submit("free", job_id="first")
    assert coordinator.why(key="free").sentence == (
        "Nothing runs in free: its first job, first, waits for node one, which has room for it."
    )
    coordinator.pause("closed", why="disk", by="ann")
    node.submit("closed", job_id="behind a pause")
    assert re.fullmatch(
        r"Lane closed is paused by ann since .*: disk\. Nothing runs in closed: its first job is behind a pause\.",
        coordinator.why(key="closed").sentence,
    )
    coordinator.resume("closed")
    let_go(coordinator)


def test_an_entry_that_fails_at_each_tick_says_since_when_and_that_a_run_by_hand_fails_too(beats: Beats) -> None:
    beat, entries = beats.beat(source(entry("broken", 1, task="shop.gone_task"))), beats.coordinator.entries
    node = Puppet(beats.store)
    node.up()
    beat.tick()
    run(beat, until=lambda: len(entries.history("broken")) > 1, seconds=30)
    events = [event for event in entries.history("broken") if event.word == "failed"]
    assert len(events) > 1
    why = beats.coordinator.why(entry="broken")
    first = events[0].at.strftime("%Y-%m-%d %H:%M:%SZ")
    assert why.sentence.startswith(
        f"broken fails at each tick since {first}: nobody has the task shop.gone_task. Mend its name; running it by "
        "hand fails, too."
    )
    assert why.causes[0].facts["since"] == events[0].at.isoformat().replace("+00:00", "Z")
    assert [cause.frees for cause in why.causes] == [None, None]
    assert events[-1].at - events[0].at >= timedelta(seconds=1)


def test_a_node_that_is_well_says_which_ready_jobs_are_not_for_it(node: Puppet, coordinator: Coordinator) -> None:
    well = Puppet(coordinator.store, "n1@alpha")
    node.nodes.leave("one", "a")
    well.up(capacity=3)
    well.submit("a", job_id="busy")
    taken = well.must_take()
    well.submit("b", job_id="b", task="shop.vanished")
    well.submit("c", job_id="c", needs=["printer"])
    sentence = coordinator.why(node="n1@alpha").sentence
    assert sentence.startswith("n1@alpha is well: 1 of 3 slots busy. 2 ready jobs are not for it (1 wants ")
    assert {"shop.vanished", "the label printer"} == set(re.findall(r"shop\.vanished|the label printer", sentence))
    well.finish(taken)
    let_go(coordinator)


def test_what_is_healthy_is_said_without_an_alarm(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="front")
    node.submit("a", job_id="next")
    taken = node.must_take()
    assert re.fullmatch(
        r"next is second in lane a, behind front\. front runs on node one for \d s, attempt 1\.",
        coordinator.why("next").sentence,
    )
    node.finish(taken)
    assert node.order() == ["next"]


@pytest.mark.parametrize(
    ("so_far", "words"),
    [
        ({"waiting.lane": 180, "waiting.slot": 2}, "waited 3 min for its lane, 2 s for a slot"),
        ({"waiting.lane": 7300, "running.job": 60}, "waited 2 h 1 min for its lane; ran 60 s"),
        ({"running.job": 60, "held": 90}, "ran 60 s; waited 90 s for you"),
        ({"waiting.lane": 0.2}, "waited 0 s for its lane"),
        ({"waiting.lane": 0.2, "running.job": 3}, "ran 3 s"),
        ({}, ""),
        ({"shop.till": 3}, "spent 3 s for shop.till"),
    ],
)
def test_the_times_so_far_are_said_in_words(so_far: dict[str, float], words: str) -> None:
    assert spent_text(so_far) == words
