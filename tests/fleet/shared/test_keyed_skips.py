"""A keyed call that was skipped, or that melted into a waiting job, has a result too: nobody waits for ever."""

from typing import Any

import pytest
from celery import chain, chord, group

from coordinator import Locked
from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex")  # by Celery itself
NODE = Node("keyed", 3)


@pytest.fixture
def keyed(fleet: Fleet) -> Any:
    """The module of the app, of which there is one node."""
    return fleet.app("keyed")


def begun(fleet: Fleet, keyed: Any, name: str = "first") -> Any:
    """A call of `once` that has the lane, until the test lets it go."""
    call = keyed.once.delay(name)
    fleet.begun(name)
    return call


def test_a_lone_call_that_is_skipped_gives_the_result_of_the_job_at_work(fleet: Fleet, keyed: Any) -> None:
    first = begun(fleet, keyed)
    second = keyed.once.delay("second")
    assert second.id == first.id
    fleet.go("first")
    assert second.get(timeout=20) == "first"
    assert [stamp.name for stamp in fleet.stamps()] == ["first"]


def test_a_skipped_call_of_a_strict_task_raises(fleet: Fleet, keyed: Any) -> None:
    first = begun(fleet, keyed)
    with pytest.raises(Locked) as caught:
        keyed.strict.delay()
    assert (caught.value.key, caught.value.holder) == ("lane/usual", first.id)
    fleet.go("first")
    assert first.get(timeout=20) == "first"
    wait_until(lambda: not keyed.coordinator.lane("lane/usual").jobs, 20)
    assert keyed.strict.delay().get(timeout=20) == "done"


def test_a_skipped_call_under_an_id_of_its_own_has_the_outcome_under_it(fleet: Fleet, keyed: Any) -> None:
    first = begun(fleet, keyed)
    mine = keyed.once.apply_async(("second",), task_id="mine", link=keyed.note.s())
    assert mine.id == "mine"
    assert keyed.coordinator.job("mine").id == first.id
    fleet.go("first")
    assert (mine.get(timeout=20), mine.name) == ("first", "keyed.once")
    fleet.begun("note/first")


CANVASES: dict[str, Any] = {
    "chain": (lambda m: chain(m.once.si("second"), m.note.s()), None),
    "chain, last": (lambda m: chain(m.plain.s(1), m.once.si("second")), "first"),
    "group": (lambda m: group(m.once.si("second"), m.plain.s(1)), ["first", 1]),
    "chord, header": (
        lambda m: chord([m.once.si("second"), m.once.si("third"), m.plain.s(1)], m.tell.s()), ["first", "first", 1],
    ),
    "chord, body": (lambda m: chord([m.plain.s(1), m.plain.s(2)], m.once.si("second")), "first"),
}  # fmt: skip


@pytest.mark.parametrize("name", CANVASES)
def test_a_canvas_goes_on_with_the_outcome_of_the_job_it_was_skipped_for(fleet: Fleet, keyed: Any, name: str) -> None:
    make, expected = CANVASES[name]
    first = begun(fleet, keyed)
    result = make(keyed).apply_async()
    if name == "chord, body":
        wait_until(lambda: all(part.ready() for part in result.parent.results), 20)
        wait_until(lambda: keyed.coordinator.store.client.exists(keyed.coordinator.store.key("job", result.id)), 20)
    elif name == "chain, last":
        wait_until(lambda: keyed.coordinator.store.client.exists(keyed.coordinator.store.key("job", result.id)), 20)
    fleet.go("first")
    assert result.get(timeout=20) == expected
    assert first.get(timeout=20) == "first"
    assert {stamp.name for stamp in fleet.stamps()} <= {"first", "plain", "note/first"}


def test_a_chord_fails_where_the_job_it_was_skipped_for_fails_or_is_revoked(fleet: Fleet, keyed: Any) -> None:
    first = begun(fleet, keyed)
    body = chord([keyed.once.si("second"), keyed.plain.s(1)], keyed.tell.s()).apply_async()
    first.revoke(terminate=True)
    with pytest.raises(Exception, match="terminated"):
        body.get(timeout=20)
    held = keyed.failing.delay("bad")
    fleet.begun("bad")
    body = chord([keyed.once.si("second"), keyed.plain.s(1)], keyed.tell.s()).apply_async()
    fleet.go("bad")
    with pytest.raises(Exception, match="bad"):
        body.get(timeout=20)
    with pytest.raises(ValueError, match="bad"):
        held.get(timeout=20)


def test_a_call_that_a_lock_or_a_pause_turned_away_fails_and_blocks_no_chord(fleet: Fleet, keyed: Any) -> None:
    with keyed.coordinator.lock("lane/usual"), pytest.raises(Locked, match="lane/usual"):
        keyed.once.delay("second").get(timeout=20)
    keyed.coordinator.pause("lane/usual")
    header, tell = [keyed.once.si("second"), keyed.plain.s(1)], keyed.tell.s().on_error(keyed.note.si("error"))
    body = chord(header, tell).apply_async()
    with pytest.raises(Exception, match="lane/usual"):
        body.get(timeout=20)
    fleet.begun("note/error")
    keyed.coordinator.resume("lane/usual")


def test_calls_that_melt_have_the_result_and_go_on_with_their_own_canvas(fleet: Fleet, keyed: Any) -> None:
    first = begun(fleet, keyed)
    calls = [keyed.late.delay("melted"), keyed.late.delay("melted")]
    linked = keyed.late.apply_async(("melted",), link=keyed.note.s())
    chained = chain(keyed.late.s("melted"), keyed.tell.s()).apply_async()
    body = chord([keyed.late.s("melted"), keyed.late.s("melted"), keyed.plain.s(1)], keyed.tell.s()).apply_async()
    other = keyed.late.delay("other")
    assert keyed.coordinator.lane("lane/usual").length == 3
    fleet.go("first")
    assert [one.get(timeout=20) for one in (*calls, linked, chained)] == ["melted"] * 4
    assert body.get(timeout=20) == ["melted", "melted", 1]
    assert (other.get(timeout=20), first.get(timeout=20)) == ("other", "first")
    fleet.begun("note/melted")
    assert len(fleet.stamps("melted")) == 1


def test_a_skip_that_is_to_start_later_is_judged_at_the_call(fleet: Fleet, keyed: Any) -> None:
    first = begun(fleet, keyed)
    assert keyed.once.apply_async(("second",), countdown=5).id == first.id
    fleet.go("first")
    assert first.get(timeout=20) == "first"
    wait_until(lambda: not keyed.coordinator.lane("lane/usual").jobs, 20)
    later = keyed.once.apply_async(("later",), countdown=0.3)
    assert keyed.coordinator.job(later.id).state == "scheduled"
    fleet.go("later")
    assert later.get(timeout=20) == "later"


def test_a_call_that_another_replaces_ends_as_revoked_and_so_does_its_canvas(fleet: Fleet, keyed: Any) -> None:
    body = chord([keyed.newest.s("first"), keyed.plain.s(1)], keyed.tell.s()).apply_async()
    fleet.begun("first")
    second = keyed.newest.delay("second")
    with pytest.raises(Exception, match="terminated"):
        body.get(timeout=20)
    fleet.begun("second")
    fleet.go("second")
    assert second.get(timeout=20) == "second"
