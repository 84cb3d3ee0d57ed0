"""Places in line: priorities and moves; groups of keys in turns; pages of lanes."""

from collections.abc import Callable

import pytest

from coordinator import InvalidJob, UnknownJob
from coordinator.ops.search.lanes import lanes
from tests.coordinator.conftest import ClientAt
from tests.harness.hand_node import Puppet


def test_a_move_asked_for_again_with_its_token_is_made_once(node: Puppet) -> None:
    for i in range(4):
        node.submit("a", job_id=f"j{i}")
    assert node.lanes.move("j1", token="mine") == "waiting"
    node.submit("a", job_id="j4")
    assert node.lanes.move("j1", token="mine") == "waiting"
    node.lanes.move("j3", to="front", token="yours")
    assert node.order() == ["j0", "j3", "j2", "j1", "j4"]
    assert node.lanes.move("j1", token="mine") == "succeeded"


def test_only_a_job_that_waits_can_be_moved(node: Puppet) -> None:
    node.submit("a", job_id="j")
    with pytest.raises(InvalidJob, match="job j is ready: only a waiting, scheduled or blocked job can be moved"):
        node.lanes.move("j")
    node.finish(node.must_take())
    with pytest.raises(InvalidJob, match="job j is succeeded"):
        node.lanes.move("j", priority=3)
    with pytest.raises(UnknownJob):
        node.lanes.move("nobody")
    with pytest.raises(InvalidJob, match="priority is a whole number"):
        node.lanes.move("j", priority=1000)
    with pytest.raises(InvalidJob, match="to 'middle': one of back, front"):
        node.lanes.move("j", to="middle")


def test_groups_of_keys_have_equal_shares_and_go_by_name_where_these_are_equal(node: Puppet) -> None:
    for i in range(6):
        node.submit(f"flood/{i}", job_id=f"flood{i}")
    for i in range(2):
        node.submit(f"light/{i}", job_id=f"light{i}")
    node.submit("plain", job_id="plain0")
    assert node.order() == [
        "plain0", "flood0", "light0", "flood1", "light1", "flood2", "flood3", "flood4", "flood5",
    ]  # fmt: skip
    assert node.store._client.exists(node.store.key("ready", "shop\ncelery")) == 0


def by_last_letter(key: str) -> str:
    return key[-1]


def refuse(key: str) -> str:
    return "a\nb"


@pytest.mark.parametrize(
    ("fair_by", "wanted"), [(None, ["x/a", "x/b", "y/a"]), (by_last_letter, ["x/a", "x/b", "y/a"])]
)
def test_an_app_names_the_groups_by_a_callable(
    node: Puppet, client_at: ClientAt, fair_by: Callable[[str], str] | None, wanted: list[str]
) -> None:
    plain = client_at(node.store.settings.url, fair_by=fair_by)
    task = {"task": "shop.work", "args": (), "kwargs": {}, "options": {}}
    for key in ("x/a", "x/b", "y/a"):
        plain.submit(key, task, job_id=key)
    lists = sorted(
        name.decode().split("group:")[1] for name in node.store._client.scan_iter(node.store.key("group", "*"))
    )
    assert lists == [f"{group}\nshop\ncelery" for group in ("xy" if fair_by is None else "ab")]
    for key in wanted:
        plain.cancel(key)


def test_a_group_that_is_no_text_is_refused(node: Puppet, client_at: ClientAt) -> None:
    plain = client_at(node.store.settings.url, fair_by=refuse)
    with pytest.raises(InvalidJob, match="fair_by must return text without control characters for the key 'k'"):
        plain.submit("k", {"task": "shop.work", "args": (), "kwargs": {}, "options": {}})


def test_lanes_come_in_pages_by_key(node: Puppet) -> None:
    names = sorted([f"b/{i:03}" for i in range(450)] + ["a", "c", "b", "b0", "ß/1"], key=str.encode)
    for name in names:
        node.submit(name)
    assert [lane.key for lane in lanes(node.store)] == names
    found, after = [], ""
    while page := lanes(node.store, "b/", most=100, after=after):
        found += [lane.key for lane in page]
        after = found[-1]
    assert found == [name for name in names if name.startswith("b/")]
    assert [lane.key for lane in lanes(node.store, "b", "ready", most=3)] == ["b", "b/000", "b/001"]
    assert lanes(node.store, "d") == lanes(node.store, "a", after="b") == []
