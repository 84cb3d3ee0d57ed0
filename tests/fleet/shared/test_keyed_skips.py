"""A keyed call that was skipped, or that coalesced into a waiting job, has a result too: nobody waits for ever."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError

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
    assert second.get(timeout=60) == "first"
    assert [stamp.name for stamp in fleet.stamps()] == ["first"]


def test_a_skipped_call_of_a_strict_task_raises(fleet: Fleet, keyed: Any) -> None:
    first = begun(fleet, keyed)
    with pytest.raises(Locked) as caught:
        keyed.strict.delay()
    assert (caught.value.key, caught.value.holder) == ("lane/usual", first.id)
    fleet.go("first")
    assert first.get(timeout=60) == "first"
    wait_until(lambda: not keyed.coordinator.lane("lane/usual").jobs)
    assert keyed.strict.delay().get(timeout=60) == "done"


def test_a_skipped_call_under_an_id_of_its_own_has_the_outcome_under_it(fleet: Fleet, keyed: Any) -> None:
    first = begun(fleet, keyed)
    mine = keyed.once.apply_async(("second",), task_id="mine", link=keyed.note.s())
    assert mine.id == "mine"
    assert keyed.coordinator.job("mine").id == first.id
    fleet.go("first")
    assert (mine.get(timeout=60), mine.name) == ("first", "keyed.once")
    fleet.begun("note/first")


# Each: a canvas of a call that is turned away, the number of such calls in it, and its result where theirs is `value`.
CANVASES: dict[str, tuple[Callable[[Any, Any], Any], int, Callable[[Any], Any]]] = {
    "chain, first": (lambda m, one: chain(one, m.tell.s()), 1, lambda value: value),
    "chain, in the middle": (lambda m, one: chain(m.plain.s(1), one, m.tell.s()), 1, lambda value: value),
    "chain, last": (lambda m, one: chain(m.plain.s(1), one), 1, lambda value: value),
    "chain, twice": (lambda m, one: chain(one, one, m.tell.s()), 1, lambda value: value),
    "group": (lambda m, one: group(one, m.plain.s(1), one), 2, lambda value: [value, 1, value]),
    "chord, header": (lambda m, one: chord([one, one, m.plain.s(1)], m.tell.s()), 2, lambda value: [value, value, 1]),
    "chord, body": (lambda m, one: chord([m.plain.s(1), m.plain.s(2)], one), 1, lambda value: value),
    "chord in a chord": (
        lambda m, one: chord([chord([one, m.plain.s(1)], m.tell.s()), m.plain.s(2)], m.tell.s()), 1,
        lambda value: [[value, 1], 2],
    ),
    "chain in a chord": (
        lambda m, one: chord([chain(one, m.tell.s()), m.plain.s(2)], m.tell.s()), 1, lambda value: [value, 2],
    ),
}  # fmt: skip
ENDS = {"fails": "bad", "is revoked": "terminated|revoked"}


def turned_away(fleet: Fleet, keyed: Any, option: str, name: str) -> tuple[Any, Any]:
    """The job for which calls with this `when_busy` are turned away, and such a call; a job at work has the lane."""
    first = begun(fleet, keyed, name)
    if option == "skip":
        return first, keyed.once.si("second")
    return keyed.late.delay(f"coalesced {name}"), keyed.late.si(f"coalesced {name}")


def wait_for_turned_away(keyed: Any, number: int) -> None:
    """So many calls of a canvas have met the busy lane."""
    store = keyed.coordinator.store

    def found() -> list[bytes]:
        names = store._client.scan_iter(f"{store.key('job', '*')}", 1000)
        return [one for one in names if any(store._client.hmget(one, "skipped", "alias"))]

    wait_until(lambda: len(found()) == number, what=lambda: f"{found()}")


@pytest.mark.parametrize("name", CANVASES)
@pytest.mark.parametrize("option", ["skip", "defer"])
def test_a_canvas_goes_on_with_the_outcome_of_the_job_that_turned_its_call_away(
    fleet: Fleet, keyed: Any, option: str, name: str
) -> None:
    make, number, expected = CANVASES[name]
    job, one = turned_away(fleet, keyed, option, "first")
    result = make(keyed, one).apply_async()
    wait_for_turned_away(keyed, number)
    fleet.go("first")
    if name == "chain, twice":  # the second one is called once the lane is free
        fleet.go("second")
    value = job.get(timeout=60)
    assert result.get(timeout=60) == expected("second" if (option, name) == ("skip", "chain, twice") else value)
    begun_ones = {stamp.name for stamp in fleet.stamps(what="begin")} - {"plain"}
    assert begun_ones == {"first", *([value, "second"] if name == "chain, twice" and option == "skip" else [value])}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", [name for name in CANVASES if name != "chain, twice"])
@pytest.mark.parametrize("option", ["skip", "defer"])
def test_a_canvas_ends_as_the_job_that_turned_its_call_away_fails_or_is_revoked(
    fleet: Fleet, keyed: Any, option: str, name: str, end: str
) -> None:
    make, number, _ = CANVASES[name]
    job, one = turned_away(fleet, keyed, option, "bad" if end == "fails" else "first")
    result = make(keyed, one).apply_async()
    wait_for_turned_away(keyed, number)
    if end == "is revoked":
        job.revoke(terminate=True)
        with pytest.raises(TaskRevokedError):
            job.get(timeout=60)
    for released in ("bad", "first"):
        fleet.go(released)
    with pytest.raises(Exception, match=ENDS[end]):
        result.get(timeout=60)


def test_a_call_that_a_lock_or_a_pause_turned_away_fails_and_blocks_no_chord(fleet: Fleet, keyed: Any) -> None:
    with keyed.coordinator.lock("lane/usual"), pytest.raises(Locked, match="lane/usual"):
        keyed.once.delay("second").get(timeout=60)
    keyed.coordinator.pause("lane/usual")
    header, tell = [keyed.once.si("second"), keyed.plain.s(1)], keyed.tell.s().on_error(keyed.note.si("error"))
    body = chord(header, tell).apply_async()
    with pytest.raises(Exception, match="lane/usual"):
        body.get(timeout=60)
    fleet.begun("note/error")
    keyed.coordinator.resume("lane/usual")


def test_calls_that_coalesce_have_the_result_and_go_on_with_their_own_canvas(fleet: Fleet, keyed: Any) -> None:
    first = begun(fleet, keyed)
    calls = [keyed.late.delay("coalesced"), keyed.late.delay("coalesced")]
    linked = keyed.late.apply_async(("coalesced",), link=keyed.note.s())
    chained = chain(keyed.late.s("coalesced"), keyed.tell.s()).apply_async()
    body = chord([keyed.late.s("coalesced"), keyed.late.s("coalesced"), keyed.plain.s(1)], keyed.tell.s()).apply_async()
    other = keyed.late.delay("other")
    assert keyed.coordinator.lane("lane/usual").length == 3
    fleet.go("first")
    assert [one.get(timeout=60) for one in (*calls, linked, chained)] == ["coalesced"] * 4
    assert body.get(timeout=60) == ["coalesced", "coalesced", 1]
    assert (other.get(timeout=60), first.get(timeout=60)) == ("other", "first")
    fleet.begun("note/coalesced")
    assert len(fleet.stamps("coalesced")) == 1


def test_a_skip_that_is_to_start_later_is_judged_at_the_call(fleet: Fleet, keyed: Any) -> None:
    first = begun(fleet, keyed)
    assert keyed.once.apply_async(("second",), countdown=5).id == first.id
    fleet.go("first")
    assert first.get(timeout=60) == "first"
    wait_until(lambda: not keyed.coordinator.lane("lane/usual").jobs)
    later = keyed.once.apply_async(("later",), countdown=3)
    assert keyed.coordinator.job(later.id).state == "scheduled"
    fleet.go("later")
    assert later.get(timeout=60) == "later"


def test_a_call_that_another_replaces_ends_as_revoked_and_so_does_its_canvas(fleet: Fleet, keyed: Any) -> None:
    body = chord([keyed.newest.s("first"), keyed.plain.s(1)], keyed.tell.s()).apply_async()
    fleet.begun("first")
    second = keyed.newest.delay("second")
    with pytest.raises(Exception, match="terminated"):
        body.get(timeout=60)
    fleet.begun("second")
    fleet.go("second")
    assert second.get(timeout=60) == "second"
