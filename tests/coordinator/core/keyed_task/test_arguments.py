"""The arguments of keyed tasks in a canvas are checked when it is called or submitted, as those of a single call."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import chain, chord, group

from coordinator import InvalidJob
from tests.harness.hand_node import Puppet, playing

Canvas = Callable[[Any, Any], Any]

# Each takes the module of the app, and a task of which one argument comes from the step before, where there is one.
BEHIND: dict[str, Canvas] = {
    "chain": lambda m, one: chain(m.plain.s(1), one),
    "chain of keyed tasks": lambda m, one: chain(m.nothing.s(), m.nothing.si(), one),
    "chord, body": lambda m, one: chord([m.plain.s(1), m.nothing.s()], one),
    "group behind a step": lambda m, one: chain(m.nothing.s(), group(m.plain.s(), one)),
    "chord behind a step": lambda m, one: chain(m.nothing.s(), chord([m.plain.s(), one], m.tell.s())),
    "body that is a chain": lambda m, one: chord([m.plain.s(1)], chain(m.tell.s(), one)),
}
FIRST: dict[str, Canvas] = {
    "group": lambda m, one: group(one, m.plain.s(1)),
    "chord, header": lambda m, one: chord([one, m.plain.s(1)], m.tell.s()),
    "chain in a group": lambda m, one: group(chain(one, m.plain.s()), m.plain.s(1)),
}


@pytest.fixture(autouse=True)
def node(keyed: Any) -> Puppet:
    return playing(keyed)


@pytest.mark.parametrize("name", BEHIND)
def test_a_wrong_argument_behind_a_call_is_refused_before_anything_is_published(keyed: Any, name: str) -> None:
    for wrong in (keyed.both.s(), keyed.both.s(1, 2), keyed.both.s(z=1), keyed.both.si(1)):
        canvas = BEHIND[name](keyed, wrong)
        with pytest.raises(InvalidJob, match=r"keyed\.both: .*(missing|takes|unexpected)"):
            canvas.apply_async()
        with pytest.raises(InvalidJob, match=r"keyed\.both: .*(missing|takes|unexpected)"):
            keyed.coordinator.submit("k", canvas)
    assert keyed.coordinator.counts()["created"] == 0
    with keyed.app.connection_for_write() as connection:
        assert connection.default_channel._size("celery") == 0
    BEHIND[name](keyed, keyed.both.s(2)).apply_async()
    keyed.coordinator.submit("k", BEHIND[name](keyed, keyed.both.s(2)))


@pytest.mark.parametrize("name", FIRST)
def test_a_wrong_argument_of_a_first_task_is_refused(keyed: Any, name: str) -> None:
    for wrong in (keyed.both.s(1), keyed.both.s(1, 2, 3)):
        with pytest.raises(TypeError, match=r"missing|takes"):
            FIRST[name](keyed, wrong).apply_async()
        with pytest.raises(InvalidJob, match=r"keyed\.both: .*(missing|takes)"):
            keyed.coordinator.submit("k", FIRST[name](keyed, wrong))
    assert keyed.coordinator.counts()["created"] == 0
    keyed.coordinator.submit("k", FIRST[name](keyed, keyed.both.s(1, 2)))


@pytest.mark.parametrize("name", [*BEHIND, *FIRST])
def test_a_model_within_a_canvas_is_taken_as_that_of_a_single_call_is(keyed: Any, name: str) -> None:
    order = keyed.modelled.si(keyed.Order(id=7, name="x"))
    make = {**BEHIND, **FIRST}[name]
    make(keyed, order).apply_async()
    job = keyed.coordinator.job(keyed.coordinator.submit("k", make(keyed, order)).id)
    assert job.state == "ready"
    assert "[{'id': 7, 'name': 'x'}]" in str(keyed.coordinator._core.spec(job.id))
