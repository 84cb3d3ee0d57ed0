"""Step by step, without processes: a drained node takes nothing new and hands over what it has."""

import pytest

from coordinator import Coordinator, InvalidJob
from tests.coordinator.core.fleet.test_nodes import pair
from tests.harness.hand_node import Puppet


def test_a_drained_node_is_neither_rung_nor_given_anything_until_it_is_undrained(coordinator: Coordinator) -> None:
    one, two = pair(coordinator)
    assert coordinator.drain("two", why="disk", by="ann") is True
    assert coordinator.drain("two", why="disk", by="ann") is False
    for i in range(6):
        one.submit(f"k{i}")
    assert (len(one.rung()), two.rung(), two.take()) == (4, [], None)
    two.nodes.beat("two", "a", {"ordinary": 0})
    one.sweep()
    assert two.rung() == []
    shown = {node.name: node for node in coordinator.nodes()}
    assert (shown["one"].draining, shown["two"].draining, shown["two"].score) == (False, True, None)
    told = shown["two"].drained or {}
    assert (told["why"], told["by"]) == ("disk", "ann")
    assert coordinator.undrain("two") is True
    assert len(two.rung()) > 0
    assert coordinator.undrain("two") is False
    assert len(two.order()) == 6


def test_a_name_stays_drained_over_its_nodes_lives(coordinator: Coordinator) -> None:
    coordinator.drain("one", why="disk")
    node = Puppet(coordinator.store, "one")
    for incarnation in "ab":
        node.up(incarnation=incarnation)
        node.submit(f"k{incarnation}")
        assert (node.rung(), node.take()) == ([], None)
        node.nodes.leave("one", incarnation)
    node.up(incarnation="c")
    coordinator.undrain("one")
    assert len(node.order()) == 2


def test_a_node_that_ends_takes_nothing_more_whatever_an_operator_undrains(node: Puppet) -> None:
    node.nodes.beat("one", "a", {"ending": 1})
    node.lanes.drain("one", True)
    node.lanes.drain("one", False)
    node.submit("a", job_id="j")
    assert (node.rung(), node.take()) == ([], None)
    node.nodes.leave("one", "a")
    node.up(incarnation="b")
    assert node.order() == ["j"]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 513])
def test_a_name_that_no_node_can_have_is_refused(coordinator: Coordinator, name: str) -> None:
    for call in (coordinator.drain, coordinator.undrain):
        with pytest.raises(InvalidJob):
            call(name)
