"""A keyed task in a canvas: results, states and callbacks are those of the same canvas without the option."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from celery import chain, chord, group
from celery.canvas import Signature, _chain
from celery.result import AsyncResult, GroupResult

from coordinator import InvalidJob
from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("keyed", 3)

Canvas = Callable[[Any], Signature]

SUCCEEDING: dict[str, Canvas] = {
    "chain, first": lambda m: chain(m.add.s(1, 2), m.plain.s(3)),
    "chain, in the middle": lambda m: chain(m.plain.s(1, 2), m.add.s(3), m.plain.s(4)),
    "chain, last": lambda m: chain(m.plain.s(1, 2), m.add.s(3)),
    "chain, all": lambda m: chain(m.add.s(1, 2), m.add.s(3), m.add.s(4)),
    "chain, immutable": lambda m: chain(m.add.s(1, 2), m.add.si(5, 6)),
    "chain, retried": lambda m: chain(m.again.s(5), m.add.s(1), m.again.s()),
    "group": lambda m: group(m.add.s(number, number) for number in range(4)),
    "group, mixed": lambda m: group(m.add.s(1, 1), m.plain.s(2, 2), m.again.s(3)),
    "chord, header": lambda m: chord([m.add.s(number, number) for number in range(4)], m.total.s()),
    "chord, body": lambda m: chord([m.plain.s(number, number) for number in range(3)], m.sum_up.s()),
    "chord, both": lambda m: chord([m.add.s(1, 1), m.plain.s(2, 2)], m.sum_up.s()),
    "chain with a group": lambda m: chain(m.add.s(1, 1), group(m.add.s(2), m.plain.s(3)), m.sum_up.s(), m.add.s(1)),
    "chord of chains": lambda m: chord([chain(m.add.s(1, 1), m.add.s(2)), m.add.s(3, 3)], m.sum_up.s()),
    "chord in a chord": lambda m: chord(
        [chord([m.add.s(1, 1), m.add.s(2, 2)], m.sum_up.s()), m.add.s(5, 5)], m.total.s()
    ),
    "group of chains": lambda m: group(chain(m.add.s(1, 1), m.plain.s(2)), chain(m.plain.s(3, 3), m.add.s(4))),
    "chain, replaced": lambda m: chain(m.swapped.s(1), m.add.s(2), m.swapped.s()),
    "chord, replaced": lambda m: chord([m.swapped.s(1), m.add.s(2, 2)], m.sum_up.s()),
    "link": lambda m: m.add.s(1, 2).set(link=[m.note.s(), chain(m.plain.s(1), m.note.s())]),
}
FAILING: dict[str, Canvas] = {
    "chain, first": lambda m: chain(m.fail.s("bad"), m.add.s(1)).on_error(m.note.si("error")),
    "chain, last": lambda m: chain(m.add.s(1, 1), m.fail.s()).on_error(m.note.si("error")),
    "group": lambda m: group(m.add.s(1, 1), m.fail.s("bad")),
    "chord, header": lambda m: chord([m.add.s(1, 1), m.fail.s("bad")], m.sum_up.s().on_error(m.note.si("error"))),
    "chord, body": lambda m: chord([m.add.s(1, 1), m.add.s(2, 2)], m.fail.s().on_error(m.note.si("error"))),
    "chain in a chord": lambda m: chord([chain(m.fail.s("bad"), m.add.s(1)), m.add.s(1, 1)], m.total.s()),
}
# Each has one task that is revoked: at work, or before it begins. Beside them the states of all parts, sorted.
AT_WORK: dict[str, tuple[Callable[[Any, Signature], Signature], str]] = {
    "chain, first": (lambda m, one: chain(one, m.add.si(1, 1)).on_error(m.note.si("error")), "PENDING REVOKED"),
    "chain, in the middle": (lambda m, one: chain(m.add.s(1, 1), one, m.add.si(1, 1)), "PENDING REVOKED SUCCESS"),
    "chain, last": (lambda m, one: chain(m.add.s(1, 1), one), "REVOKED SUCCESS"),
    "group": (lambda m, one: group(one, m.plain.s(1)), "REVOKED SUCCESS"),
    "chord, header": (
        lambda m, one: chord([one, m.plain.s(1)], m.tell.s().on_error(m.note.si("error"))), "FAILURE REVOKED SUCCESS",
    ),
    "chord, body": (lambda m, one: chord([m.add.s(1, 1), m.plain.s(1)], one), "REVOKED SUCCESS SUCCESS"),
    "chain in a chord": (
        lambda m, one: chord([chain(one, m.add.si(1, 1)), m.plain.s(1)], m.tell.s()), "PENDING PENDING REVOKED SUCCESS",
    ),
}  # fmt: skip


@pytest.fixture
def keyed(fleet: Fleet) -> Any:
    """The module of the app, of which there is one node."""
    return fleet.app("keyed")


def past(sig: Any) -> Any:
    """The same canvas, each task of which goes past its lane."""
    if isinstance(sig, _chain | group):
        for one in sig.tasks:
            past(one)
    elif isinstance(sig, chord):
        past(sig.tasks if isinstance(sig.tasks, group) else group(sig.tasks))
        past(sig.body)
    else:
        sig.set(coordinate=False)
    for link in sig.options.get("link") or ():
        past(link)
    return sig


def tree(result: Any) -> list[AsyncResult]:
    """All results of a canvas: members of groups, and parents."""
    if result is None:
        return []
    own = [one for part in result.results for one in tree(part)] if isinstance(result, GroupResult) else [result]
    return own + tree(result.parent)


def outcome(fleet: Fleet, sig: Signature, notes: int) -> dict[str, Any]:
    """How a canvas ended: its value or error, the state of each part, and the callbacks."""
    before = Counter(stamp.name for stamp in fleet.stamps(what="begin"))
    result = sig.apply_async()
    try:
        value: Any = result.get(timeout=60)
    except Exception as error:
        value = f"{type(error).__name__}: {error}".replace(getattr(result, "id", ""), "…")
    parts = tree(result)
    wait_until(
        lambda: all(part.ready() for part in parts), 20, lambda: f"{[(part.name, part.state) for part in parts]}"
    )

    def called() -> Counter[str]:
        now = Counter(stamp.name for stamp in fleet.stamps(what="begin"))
        return Counter({name: count for name, count in (now - before).items() if name.startswith("note/")})

    wait_until(lambda: called().total() >= notes, what=lambda: f"{called()} notes\n{fleet.logs()[-3000:]}")
    return {"value": value, "states": [part.state for part in parts], "called": called()}


def revoked(fleet: Fleet, keyed: Any, name: str, way: Callable[[Any], Any]) -> dict[str, Any]:
    """How a canvas ended of which a task was revoked at its work."""
    make, states = AT_WORK[name]
    begun = len(fleet.stamps("endless", "begin"))
    one = keyed.held.si("endless").set(task_id=f"{way.__name__} {name}")
    result = way(make(keyed, one)).apply_async()
    wait_until(lambda: len(fleet.stamps("endless", "begin")) > begun, what=fleet.logs)
    return ended_by(revoke(keyed, one.id, terminate=True), result, states)


def revoke(keyed: Any, task_id: str, **how: Any) -> AsyncResult:
    """The node has heard of it."""
    assert keyed.app.control.revoke(task_id, reply=True, timeout=10, limit=1, **how)
    return keyed.app.AsyncResult(task_id)


def ended_by(one: AsyncResult, result: Any, states: str) -> dict[str, Any]:
    """How a canvas ended of which this was revoked, once its parts have these states, sorted."""
    parts = tree(result)
    wait_until(
        lambda: " ".join(sorted(part.state for part in parts)) == states, 20, lambda: f"{parts} are not {states}"
    )
    found = {"states": [part.state for part in parts], "why": str(one.result)}
    if not isinstance(result.parent, GroupResult) or result.ready():  # Celery leaves the others alone
        with pytest.raises(Exception) as caught:
            result.get(timeout=60)
        found["error"] = f"{type(caught.value).__name__}: {caught.value}".replace(one.id, "…")
    return found


def one_at_a_time(fleet: Fleet) -> bool:
    """The stamps of `add` come in pairs."""
    found = [stamp.what for stamp in fleet.stamps() if stamp.name == "add/usual"]
    return found == ["begin", "end"] * (len(found) // 2)


@pytest.mark.broker
@pytest.mark.parametrize("name", SUCCEEDING)
def test_a_canvas_succeeds_as_without_the_option_one_at_a_time(fleet: Fleet, keyed: Any, name: str) -> None:
    notes = 2 if name == "link" else 0
    with_it = outcome(fleet, SUCCEEDING[name](keyed), notes)
    assert one_at_a_time(fleet), fleet.stamps()
    jobs = keyed.coordinator.counts()["created"]
    assert with_it == outcome(fleet, past(SUCCEEDING[name](keyed)), notes)
    assert set(with_it["states"]) == {"SUCCESS"}
    assert keyed.coordinator.counts()["created"] == jobs > 0


def test_a_next_step_that_is_refused_ends_its_chain_and_its_chord_and_not_the_step_before(
    fleet: Fleet, keyed: Any
) -> None:
    steps = chain(keyed.nothing.s(), keyed.both.s(1), keyed.tell.s()).on_error(keyed.note.si("refused")).apply_async()
    with pytest.raises(InvalidJob, match=r"keyed\.both: .*\{x\} is None"):
        steps.get(timeout=60)
    wait_until(lambda: [part.state for part in tree(steps)] == ["FAILURE", "FAILURE", "SUCCESS"])
    fleet.begun("note/refused")
    header = [chain(keyed.nothing.s(), keyed.both.s(1)), keyed.plain.s(1)]
    with pytest.raises(Exception, match=r"\{x\} is None"):
        chord(header, keyed.tell.s()).apply_async().get(timeout=60)
    wrong = keyed.nothing.apply_async(link=keyed.plain.s(1, 2, 3))
    assert wrong.get(timeout=60) is None
    wait_until(lambda: fleet.logs().count("cannot be called after the end of a job") == 3, what=fleet.logs)


@pytest.mark.parametrize("name", FAILING)
def test_a_canvas_fails_as_without_the_option(fleet: Fleet, keyed: Any, name: str) -> None:
    notes = 0 if name in ("group", "chain in a chord") else 1
    with_it, without = outcome(fleet, FAILING[name](keyed), notes), outcome(fleet, past(FAILING[name](keyed)), notes)
    assert with_it == without
    assert "FAILURE" in with_it["states"]


def keep(sig: Any) -> Any:
    return sig


@pytest.mark.parametrize("name", AT_WORK)
def test_a_canvas_of_which_a_task_is_revoked_at_work_ends_as_without_the_option(
    fleet: Fleet, keyed: Any, name: str
) -> None:
    assert revoked(fleet, keyed, name, keep) == revoked(fleet, keyed, name, past)


def test_a_canvas_of_which_a_task_is_revoked_before_it_began_ends_as_without_the_option(
    fleet: Fleet, keyed: Any
) -> None:
    def ends(way: Callable[[Any], Any]) -> list[dict[str, Any]]:
        found = []
        for make, states in (
            (lambda one: chain(one, keyed.add.s(1)), "PENDING REVOKED"),
            (lambda one: chord([one, keyed.plain.s(1)], keyed.tell.s()), "FAILURE REVOKED SUCCESS"),
        ):
            later = keyed.add.s(1, 1).set(countdown=4, task_id=f"{way.__name__} {states}")
            result = way(make(later)).apply_async()
            found.append(ended_by(revoke(keyed, later.id), result, states))
        return found

    assert ends(keep) == ends(past)


def test_a_later_step_of_a_chain_may_be_revoked_while_the_first_is_at_work(fleet: Fleet, keyed: Any) -> None:
    def ends(way: Callable[[Any], Any]) -> dict[str, Any]:
        name = way.__name__
        steps = chain(keyed.held.si(name), keyed.add.si(1, 1).set(task_id=f"last {name}"))
        result = way(steps).apply_async()
        fleet.begun(name)
        last = revoke(keyed, result.id)
        fleet.go(name)
        return ended_by(last, result, "REVOKED SUCCESS")

    assert ends(keep) == ends(past)
    assert not fleet.stamps("add/usual")
