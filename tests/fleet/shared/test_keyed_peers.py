"""The promises of celery-singleton's and celery-once's own tests, where they make sense here: one option keeps them."""

import threading
from datetime import date
from typing import Any

import pytest

from coordinator import InvalidJob, Locked
from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("keyed", 3)


@pytest.fixture
def keyed(fleet: Fleet) -> Any:
    """The module of the app, of which there is one node."""
    return fleet.app("keyed")


def free(keyed: Any, lane: str = "lane/usual") -> None:
    wait_until(lambda: not keyed.coordinator.lane(lane).jobs)


def test_equal_calls_share_one_run_and_others_have_their_own(fleet: Fleet, keyed: Any) -> None:
    first = keyed.once.delay("first")
    equal = [keyed.once.delay("first"), keyed.once.delay(name="first"), keyed.once.apply_async(("first", "usual"))]
    other = keyed.once.delay("other", lane="b")
    assert {one.id for one in equal} == {first.id} != {other.id}
    for name in ("first", "other"):
        fleet.go(name)
    assert [one.get(timeout=60) for one in (first, *equal, other)] == ["first"] * 4 + ["other"]
    assert len(fleet.stamps("first", "begin")) == 1


def test_only_the_arguments_that_the_key_names_count(fleet: Fleet, keyed: Any) -> None:
    first = keyed.once.delay("first")
    fleet.begun("first")
    assert keyed.once.delay("anything").id == first.id
    assert keyed.once.delay("elsewhere", "b").id != first.id
    for name in ("first", "elsewhere"):
        fleet.go(name)
    free(keyed)
    free(keyed, "lane/b")


def test_of_many_callers_at_once_one_starts_the_run(fleet: Fleet, keyed: Any) -> None:
    found: list[str] = []
    callers = [threading.Thread(target=lambda: found.append(keyed.once.delay("first").id)) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    fleet.go("first")
    free(keyed)
    assert len(fleet.stamps("first", "begin")) == 1


@pytest.mark.parametrize("end", ["succeeds", "fails", "is revoked", "expires"])
def test_the_lane_is_free_again_however_the_run_ends(fleet: Fleet, keyed: Any, end: str) -> None:
    if end == "succeeds":
        keyed.strict.delay().get(timeout=60)
    elif end == "fails":
        with pytest.raises(ValueError, match="no"):
            keyed.fail.delay("no").get(timeout=60)
    elif end == "is revoked":
        first = keyed.once.delay("first")
        fleet.begun("first")
        first.revoke(terminate=True)
    else:
        keyed.coordinator.pause("lane/usual")
        keyed.add.apply_async((1, 2), expires=0.1)
        free(keyed)
        keyed.coordinator.resume("lane/usual")
    free(keyed)
    assert keyed.strict.delay().get(timeout=60) == "done"


def test_a_task_that_retries_itself_is_not_refused_by_its_own_lane(fleet: Fleet, keyed: Any) -> None:
    assert keyed.again.delay(5).get(timeout=60) == 5


def test_a_later_call_holds_off_no_other_until_its_time(fleet: Fleet, keyed: Any) -> None:
    later = keyed.once.apply_async(("later",), countdown=3600)
    assert keyed.coordinator.job(later.id).state == "scheduled"
    assert keyed.strict.delay().get(timeout=60) == "done"
    later.revoke()
    wait_until(lambda: keyed.coordinator.job(later.id).over)


def test_a_duplicate_may_raise_and_names_the_run(fleet: Fleet, keyed: Any) -> None:
    first = keyed.once.delay("first")
    for call in (keyed.strict.delay, keyed.strict.apply_async, keyed.strict.s().apply_async):
        with pytest.raises(Locked) as caught:
            call()
        assert caught.value.holder == first.id
    fleet.go("first")
    free(keyed)


def test_the_body_is_called_as_in_celery_where_nothing_is_published(keyed: Any) -> None:
    with keyed.coordinator.lock("lane/usual"):
        assert keyed.strict() == keyed.strict.apply().get() == "done"
        keyed.app.conf.task_always_eager = True
        try:
            assert keyed.strict.delay().get() == "done"
        finally:
            keyed.app.conf.task_always_eager = False


def test_keys_may_be_of_any_language_and_dates_and_a_missing_one_is_named(fleet: Fleet, keyed: Any) -> None:
    assert keyed.both.delay("héllo", date(2026, 1, 2)).get(timeout=60) == ["lane/héllo", "lane/2026-01-02"]
    with pytest.raises(InvalidJob, match=r"keyed\.both: .*\{y\} is None"):
        keyed.both.delay("x", None)
    with pytest.raises(TypeError, match="missing"):
        keyed.both.delay("x")


def test_a_call_that_could_not_be_made_leaves_the_lane_free(fleet: Fleet, keyed: Any) -> None:
    with pytest.raises(InvalidJob, match="not JSON"):
        keyed.once.delay(object())
    assert keyed.strict.delay().get(timeout=60) == "done"
