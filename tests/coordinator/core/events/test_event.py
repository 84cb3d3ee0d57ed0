"""Events: set once, with a value of JSON."""

import pytest

from coordinator import Coordinator, EventTaken, InvalidJob


def test_an_event_keeps_the_value_to_which_it_was_set_first(coordinator: Coordinator) -> None:
    event = coordinator.event("approved/42")
    assert (event.is_set, event.value, event.at) == (False, None, None)
    assert event.set({"by": "ann", "pages": [1, 2]}, why="all pages are there", by="ulla")
    assert not event.set({"pages": [1, 2], "by": "ann"}), "the same value, in another order"
    with pytest.raises(EventTaken, match=r"'approved/42' is set already, to .*ann.*: it keeps that value"):
        event.set("no")
    again = coordinator.event("approved/42")
    assert (again.is_set, again.value, again.by, again.why) == (
        True, {"by": "ann", "pages": [1, 2]}, "ulla", "all pages are there",
    )  # fmt: skip


def test_null_is_a_value_as_any_other(coordinator: Coordinator) -> None:
    event = coordinator.event("seen")
    assert event.set()
    assert (event.is_set, event.value, event.set(None)) == (True, None, False)
    with pytest.raises(EventTaken):
        event.set(False)


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 513])
def test_a_name_is_text_on_one_line(coordinator: Coordinator, name: str) -> None:
    with pytest.raises(InvalidJob, match="an event's name is text of 1 to 512 bytes on one line"):
        coordinator.event(name)


@pytest.mark.parametrize(("value", "said"), [(object(), "its value is not JSON"), ("x" * 2**20, "its value has")])
def test_a_value_that_is_no_json_or_too_long_is_refused_and_nothing_is_set(
    coordinator: Coordinator, value: object, said: str
) -> None:
    event = coordinator.event("approved/42")
    with pytest.raises(InvalidJob, match=said):
        event.set(value)  # type: ignore[arg-type]
    assert not event.is_set
