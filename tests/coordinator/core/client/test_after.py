"""The option `after` in each place where jobs are submitted: it works there, or is refused by name."""

import asyncio
from typing import Any

import pytest

from coordinator import Coordinator, EventTaken, InvalidJob, UnknownJob, aio
from coordinator.scheduler.entry import Entry
from tests.harness.hand_node import Puppet, playing

WORK = {"task": "shop.work", "args": [], "kwargs": {}, "options": {}}


def test_causes_are_named_by_ids_submissions_and_events(node: Puppet, coordinator: Coordinator) -> None:
    one = coordinator.submit("a", WORK, job_id="one")
    event = coordinator.event("approved/42")
    for after in ("one", one, ["one"], [one, event], {"x": "one", "y": event}, (one,)):
        coordinator.submit("b", WORK, after=after)
    assert len(coordinator.job("one").dependants) == 6
    assert event.set(by="ann")
    assert len(node.order()) == 7
    assert (event.is_set, event.value) == (True, None)
    with pytest.raises(EventTaken, match="set already, to null"):
        event.set(1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"after": 7}, "by its id or by its Submission, not by 7"),
        ({"after": {"a b": "one"}}, "names of arguments, not by 'a b'"),
        ({"after": {"x": "one"}, "on_failure_of": "skip"}, "on_failure_of"),
        ({"on_failure_of": "run"}, "on_failure_of is for a submit with after"),
        ({"after": "one", "when_busy": "skip"}, "takes no when_busy, no max_waiting and no collect"),
        ({"after": "one", "max_waiting": 1}, "takes no when_busy, no max_waiting and no collect"),
        ({"after": "one", "instance": "x"}, "it takes no after"),
        ({"after": [f"{number}" for number in range(1001)]}, "after has 1001 causes; at most 1000"),
    ],
)
def test_what_is_wrong_with_it_is_named(node: Puppet, coordinator: Coordinator, options: Any, text: str) -> None:
    coordinator.submit("a", WORK, job_id="one")
    with pytest.raises(InvalidJob, match=text):
        coordinator.submit("b", WORK, **options)
    coordinator.cancel("one")


def test_an_argument_that_the_signature_names_is_not_handed_on(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.submit("a", WORK, job_id="one")
    with pytest.raises(InvalidJob, match="hands a result on as 'x', which the signature names, too"):
        coordinator.submit("b", {**WORK, "kwargs": {"x": 1}}, after={"x": "one"})
    coordinator.cancel("one")


def test_many_jobs_that_wait_for_one_that_nobody_knows_name_all_ids(node: Puppet, coordinator: Coordinator) -> None:
    with pytest.raises(UnknownJob, match="never") as raised:
        coordinator.submit_many([("a", WORK, {"job_id": "one"}), ("b", WORK, {"job_id": "two", "after": "never"})])
    assert raised.value.job_ids == ("one", "two")
    assert node.order() == ["one"]


def test_over_asyncio_jobs_wait_for_jobs_and_events_and_events_are_set(node: Puppet, coordinator: Coordinator) -> None:
    async def body() -> None:
        async with aio.Coordinator(coordinator) as client:
            event = client.event("approved/42")
            one = await client.submit("a", WORK, job_id="one")
            await client.submit_many([("c", WORK, {"job_id": "3", "after": "2"}), ("b", WORK, {"job_id": "2"})])
            await client.submit("d", WORK, job_id="last", after=[one, event])
            assert [wait.open for wait in (await client.job("last")).after] == [True, True]
            assert (await client.why("last")).codes[0] == "blocked"
            assert (await client.plan.cancel("2")).dependants == {"failed": 1}
            assert not await event.is_set()
            assert await event.set({"by": "me"})
            assert (await event.value(), await event.is_set()) == ({"by": "me"}, True)

    asyncio.run(body())
    assert {*node.order()} == {"one", "2", "3", "last"}


def test_orders_and_entries_take_no_causes(node: Puppet, coordinator: Coordinator) -> None:
    orders: Any = coordinator.sorter("orders", 60)
    with pytest.raises(InvalidJob, match="after: the orders of a sorter are put in line together"):
        orders.add("1", "a", WORK, after="one", if_unknown="wait")
    with pytest.raises((InvalidJob, TypeError, ValueError), match="after, which names causes of one job"):
        coordinator.entries.put(Entry("nightly", "0 0 2 * * ?", "shop.work", key="a", submit={"after": "one"}))


def test_a_keyed_task_names_its_key_and_the_submit_of_a_call_its_causes(keyed: Any) -> None:
    node = playing(keyed)
    first = keyed.coordinator.submit(None, keyed.add.s(1, 2))
    last = keyed.coordinator.submit(None, keyed.add.s(y=4), after={"x": first})
    assert (keyed.coordinator.job(last).keys, node.order()) == (("lane/usual",), [first.id, last.id])
    with pytest.raises(InvalidJob, match="the key is made of 'lane', which a cause hands on later: name a key"):
        keyed.coordinator.submit(None, keyed.add.s(1, 2), after={"lane": first})
