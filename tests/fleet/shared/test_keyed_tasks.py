"""A keyed task is called as any Celery task is, and each call goes through its lane."""

from datetime import UTC, datetime, timedelta
from typing import Any

import celery
import pytest
from celery import signals
from celery.exceptions import TaskRevokedError

from tests.harness.fleet import Fleet
from tests.harness.standing import Node

NODE = Node("keyed", 3)


@pytest.fixture
def keyed(fleet: Fleet) -> Any:
    """The module of the app, of which there is one node."""
    return fleet.app("keyed")


def test_delay_goes_through_the_lane_and_gives_the_result(fleet: Fleet, keyed: Any) -> None:
    first, second = keyed.held.delay("first", lane="a"), keyed.add.delay(1, y=2, lane="a")
    fleet.begun("first")
    assert keyed.coordinator.lane("lane/a").jobs == (first.id, second.id)
    assert keyed.coordinator.job(second.id).state == "waiting"
    fleet.go("first")
    assert (first.get(timeout=60), second.get(timeout=60)) == ("first", 3)
    assert keyed.coordinator.job(second.id).keys == ("lane/a",)


def test_the_option_works_wherever_celery_takes_options(fleet: Fleet, keyed: Any) -> None:
    assert keyed.both.delay(1, 2).get(timeout=60) == ["lane/1", "lane/2"]
    assert keyed.annotated.delay().get(timeout=60) == ["lane/usual"]
    assert keyed.counted.apply_async(kwargs={"lane": "c"}).get(timeout=60) == ["lane/c"]
    assert keyed.app.send_task("keyed.both", (3, 3)).get(timeout=60) == ["lane/3"]
    assert keyed.counted.called == 1, "a base class's own apply_async is called"


@pytest.mark.skipif(celery.VERSION[:2] < (5, 7), reason="before Celery 5.7, a call takes no models")
def test_the_key_of_a_call_with_a_model_is_made_from_its_fields(fleet: Fleet, keyed: Any) -> None:
    assert keyed.modelled.delay(keyed.Order(id=7, name="x")).get(timeout=60) == "x"


def test_a_call_may_go_past_its_lane_and_so_do_its_retries(fleet: Fleet, keyed: Any) -> None:
    first = keyed.held.delay("first", lane="a")
    fleet.begun("first")
    past = [keyed.both.apply_async(("a", "a"), coordinate=False), keyed.again.apply_async((7, "a"), coordinate=False)]
    assert [one.get(timeout=60) for one in past] == [[], 7]
    assert keyed.coordinator.counts()["created"] == 1
    fleet.go("first")
    first.get(timeout=60)


@pytest.mark.broker
def test_links_errbacks_and_retries_are_as_of_any_task(fleet: Fleet, keyed: Any) -> None:
    done = keyed.add.apply_async((1, 2), link=keyed.add.s(10), link_error=keyed.note.si("wrong"))
    assert done.get(timeout=60) == 3
    bad = keyed.fail.apply_async(("bad",), link_error=keyed.note.si("right"))
    with pytest.raises(ValueError, match="bad"):
        bad.get(timeout=60)
    fleet.begun("note/right")
    assert [child.get(timeout=60) for child in done.children] == [13]
    assert keyed.again.delay(5).get(timeout=60) == 5
    assert len(fleet.stamps("again", "begin")) == 3
    assert not fleet.stamps("note/wrong")


def test_what_a_keyed_task_calls_are_its_children(fleet: Fleet, keyed: Any) -> None:
    parent = keyed.parent.delay()
    assert parent.get(timeout=60) == "parent"
    assert [child.get(timeout=60) for child in parent.children] == [3]
    assert parent.children[0].id != parent.id


def test_the_options_of_a_call_are_those_of_the_job(fleet: Fleet, keyed: Any) -> None:
    first = keyed.held.delay("first", lane="a")
    fleet.begun("first")
    low = keyed.about.apply_async(kwargs={"lane": "a"}, priority=9)
    high = keyed.about.apply_async(
        kwargs={"lane": "a"}, priority=0, task_id="mine", headers={"colour": "red"}, retries=2
    )
    late = keyed.add.apply_async((1, 2, "b"), countdown=3600)
    too_late = keyed.add.apply_async((1, 2, "a"), expires=datetime.now(UTC) + timedelta(seconds=0.2))
    assert (keyed.coordinator.job(low.id).priority, keyed.coordinator.job("mine").priority) == (-9, 0)
    assert keyed.coordinator.job(late.id).state == "scheduled"
    with pytest.raises(TaskRevokedError):
        too_late.get(timeout=60)
    fleet.go("first")
    found = high.get(timeout=60)
    assert (high.id, found["id"], found["headers"], found["retries"]) == ("mine", "mine", {"colour": "red"}, 2)
    assert found["reply_to"] == keyed.app.thread_oid
    late.revoke()
    with pytest.raises(TaskRevokedError):
        late.get(timeout=60)
    assert [low.get(timeout=60)["id"], first.get(timeout=60)] == [low.id, "first"]


def test_signals_hear_of_a_call_and_may_change_its_message(fleet: Fleet, keyed: Any) -> None:
    heard: list[tuple[str, str]] = []

    def before(sender: str, headers: dict[str, Any], body: Any, **_: Any) -> None:
        heard.append(("before", sender))
        headers["trace"] = "t-1"
        body[1]["lane"] = "changed"

    def after(sender: str, headers: dict[str, Any], **_: Any) -> None:
        heard.append(("after", headers["id"]))

    signals.before_task_publish.connect(before)
    signals.after_task_publish.connect(after)
    try:
        call = keyed.about.delay()
    finally:
        signals.before_task_publish.disconnect(before)
        signals.after_task_publish.disconnect(after)
    assert call.get(timeout=60)["headers"] == {"trace": "t-1"}
    assert keyed.coordinator.job(call.id).keys == ("lane/changed",)
    assert heard[0] == ("before", "keyed.about")
    assert ("after", call.id) in heard


def test_a_submit_without_a_key_takes_that_of_the_task(fleet: Fleet, keyed: Any) -> None:
    told = keyed.coordinator.submit(None, keyed.add.s(1, 2, lane="own"))
    other = keyed.coordinator.submit("explicit", keyed.add.s(1, 2, lane="own"))
    assert keyed.coordinator.wait(told.id, 60).keys == ("lane/own",)
    assert keyed.coordinator.wait(other.id, 60).keys == ("explicit",)
    with pytest.raises(ValueError, match=r"keyed.plain: name a key"):
        keyed.coordinator.submit(None, keyed.plain.s(1))
