"""What a submit makes of a chain's options, and the chains that it refuses."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import chain, chord, group

from coordinator import InvalidJob
from tests.harness.hand_node import playing
from tests.harness.installation import Installation


@pytest.fixture
def depot(apps: Installation) -> Any:
    """The module of an app, of which a node lives that no task is given to."""
    playing(apps.depot)
    return apps.depot


def test_options_of_the_whole_chain_are_those_of_its_steps_unless_they_have_their_own(depot: Any) -> None:
    order = chain(depot.step.s([], "a").set(queue="own"), depot.step.s("b")).set(queue="both", time_limit=7)
    job_id = depot.coordinator.submit("k", order).id
    steps = depot.coordinator._core.spec(job_id)["steps"]
    assert [step["class"] for step in steps] == ["depot\nown", "depot\nboth"]
    assert [step["limit"] for step in steps] == [7000, 7000]
    depot.coordinator.cancel(job_id)


def test_a_step_needs_its_own_labels_and_those_of_the_chain_and_of_the_submit(depot: Any) -> None:
    order = chain(depot.step.s([], "a"), depot.step.s("b").set(needs=["gpu", "eu"])).set(needs={"big"})
    job_id = depot.coordinator.submit("k", order, needs={"eu"}).id
    steps = depot.coordinator._core.spec(job_id)["steps"]
    assert [step["class"] for step in steps] == ["depot\ndepot\nbig\neu", "depot\ndepot\nbig\neu\ngpu"]
    depot.coordinator.cancel(job_id)
    with pytest.raises(InvalidJob, match="needs is a list of texts"):
        depot.coordinator.submit("k", chain(depot.step.s([], "a"), depot.step.s("b").set(needs="gpu")))


def _typo(depot: Any) -> Any:
    return depot.app.signature("depot.typo")


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an error link": (lambda d: chain(d.work.s("a"), d.work.si("b").on_error(d.work.s("x"))), "step 1, .* link_error"),
    "an unknown task": (_typo, "unknown task 'depot.typo'"),
    "an unknown step": (lambda d: chain(d.work.s("a"), _typo(d)), "unknown task 'depot.typo'"),
    "an unknown member": (lambda d: group(d.work.s("a"), _typo(d)), "unknown task 'depot.typo'"),
    "an unknown body": (lambda d: chord([d.work.s("a"), d.work.s("b")], _typo(d)), "unknown task 'depot.typo'"),
    "an argument": (lambda d: chain(d.work.s("a"), d.work.si(object())), "argument 0 of step 1 is not JSON: object"),
    "a member's": (
        lambda d: chain(d.work.s("a"), group(d.work.si("b"), d.work.si(object()))),
        "argument 0 of .*work of step 1 is not JSON: object",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name_before_anything_is_written(depot: Any, what: str) -> None:
    make, text = REFUSED[what]
    with pytest.raises(InvalidJob, match=text):
        depot.coordinator.submit("k", make(depot))
    assert depot.coordinator.lanes() == []
    assert depot.coordinator.counts()["created"] == 0


def test_a_rollback_of_an_unknown_task_is_refused(depot: Any) -> None:
    with pytest.raises(InvalidJob, match=r"unknown task 'depot\.undo'"):
        depot.coordinator.submit("k", depot.work.s("a"), rollback=depot.app.signature("depot.undo"))
