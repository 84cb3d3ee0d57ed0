"""All events in pages, and one with the jobs that wait for it."""

import pytest

from coordinator import Coordinator, EventRecord, InvalidJob
from tests.coordinator.core.lanes.test_after import wait
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer


def names(coordinator: Coordinator, prefix: str = "", most: int = 2) -> list[str]:
    """Of all pages, one after another."""
    found, after = list[str](), ""
    while True:
        page = coordinator.events(prefix, most, after)
        assert len(page.events) <= most
        found += [one.name for one in page.events]
        if not (after := page.after):
            return found


def test_those_that_are_waited_for_come_first_and_then_the_latest_that_were_set(
    node: Puppet, coordinator: Coordinator
) -> None:
    for name in ("w/c", "w/a", "w/b", "x"):
        node.submit(name, after=coordinator.event(name))
    for name in ("s/1", "s/3", "s/2"):
        coordinator.event(name).set(name)
    events = coordinator.store.key("events")
    coordinator.store._client.zadd(events, {"s/3": 9e12, "s/1": 9e12, "s/2": 9e12 + 1})
    for most in (1, 2, 100):
        assert names(coordinator, "", most) == ["w/a", "w/b", "w/c", "x", "s/2", "s/3", "s/1"]
    assert names(coordinator, "w/") == ["w/a", "w/b", "w/c"]
    assert names(coordinator, "s/") == ["s/2", "s/3", "s/1"]
    assert names(coordinator, "nothing") == []


def test_a_page_reads_a_bounded_number_of_names(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.ops.search.events._MOST_READ", 3)
    for number in range(7):
        coordinator.event(f"{number}").set()
    page = coordinator.events("0", 5)
    assert (page.events, bool(page.after)) == ((), True)
    assert names(coordinator, "0") == ["0"]


def test_an_event_is_kept_for_an_hour_at_least(redis_server: RedisServer, prefix: str) -> None:
    with Coordinator(url=redis_server.url(0), prefix=prefix, keep_success=1, keep_failure=2) as coordinator:
        coordinator.event("e").set(1)
        one = coordinator.event_status("e").event
    assert one.at
    assert one.until
    assert 3599 <= (one.until - one.at).total_seconds() <= 3601


def test_a_wrong_cursor_is_refused(coordinator: Coordinator) -> None:
    for after in ("x", "set five x", "waited x y"):
        with pytest.raises(InvalidJob, match="give the `after` of a page of events"):
            coordinator.events(after=after)


def test_one_event_has_its_waiters_in_their_order_and_until_when(node: Puppet, coordinator: Coordinator) -> None:
    event = coordinator.event("approved")
    assert coordinator.event_status("approved").event == EventRecord("approved", 0)
    node.submit("a", job_id="parked")
    wait(node, "approved")
    for number in range(3):
        node.submit("b", job_id=f"blocked {number}", after=event)
    status = coordinator.event_status("approved", 3)
    assert (status.event.waiting, status.event.at) == (4, None)
    found = [(one.job_id, one.state, one.task) for one in status.waiters]
    assert found == [("parked", "parked", "shop.other"), *((f"blocked {n}", "blocked", "shop.work") for n in range(2))]
    until, other, _ = [one.until for one in status.waiters]
    assert until
    assert other is None
    event.set([1], why="seen", by="ann")
    status = coordinator.event_status("approved")
    one = status.event
    assert (one.value, one.by, one.why, one.waiting, status.waiters) == ([1], "ann", "seen", 0, ())
    assert one.at
    assert one.until
    assert one.at < until < one.until
    assert node.lanes.job("parked").state == "ready"
