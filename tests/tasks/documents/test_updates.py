"""What an author may rely on."""

import time

import pytest

from tasks.documents.copy import Copy, sum_of
from tasks.documents.errors import Changed, StaleFence, UpdatePending
from tasks.documents.on_disk import Copies
from tests.harness.waiting import wait_until
from tests.tasks.conftest import in_threads
from tests.tasks.documents.replica_set import NAME, Residents


def test_an_update_is_on_every_disk_before_its_author_hears_of_it(members: Residents) -> None:
    started = members.ready("a", "b", "c")
    for number in range(20):
        version = members.put("x", number)
        found = [member.copies.read(version) for member in started]
        assert [copy and copy.value("x") for copy in found] == [number] * 3


def test_each_member_hears_what_is_told_to_all_of_them(members: Residents) -> None:
    members.ready("a", "b")
    channel = members.store.key("replica", NAME)
    assert members.store.read("PUBSUB NUMSUB", channel) == [(channel.encode(), 2)]


def test_copies_of_a_version_are_equal_and_have_its_sum(members: Residents) -> None:
    started = members.ready("a", "b", "c")
    for number in range(5):
        members.put(f"e{number}", {"ü": number, "text": 'a,"b\n\u2028'})
    members.put("e4", None)
    version, sha = members.document.pointer()
    copies = [Copies(member.copies.folder.parent, NAME).read(version) for member in started]
    assert [copy and sum_of(copy.state) for copy in copies] == [sha] * 3
    assert members.agree().value("e3") == {"ü": 3, "text": 'a,"b\n\u2028'}


def test_a_member_that_comes_later_has_the_same(members: Residents) -> None:
    members.ready("a")
    members.put("b", 1)
    members.put("a", None)
    members.ready("late")
    assert members.agree().entries() == {"b": 1}


def test_a_smaller_fence_than_an_entry_has_is_refused(members: Residents) -> None:
    members.ready("a")
    early, late = members.document.fence(), members.document.fence()
    members.document.update({"x": 2}, fence=late)
    with pytest.raises(StaleFence) as refused:
        members.document.update({"y": 1, "x": 1}, fence=early)
    assert (refused.value.entry, refused.value.seen) == ("x", late)
    assert members.agree().entries() == {"x": 2}


def test_two_writers_of_different_entries_are_both_kept(members: Residents) -> None:
    members.ready("a", "b")
    in_threads(lambda n: [members.put(f"e{n}", i) for i in range(10)], range(4))
    assert members.agree().entries() == {f"e{n}": 9 for n in range(4)}


def test_what_changed_since_its_author_read_it_is_refused(members: Residents) -> None:
    members.ready("a")
    members.put("x", 1)
    read = members.document.read()
    members.put("x", 2)
    with pytest.raises(Changed):
        members.document.update({"y": 1, "x": 3}, fence=members.document.fence(), expect=read)
    members.document.update({"y": 1}, fence=members.document.fence(), expect=read)
    with pytest.raises(Changed):
        members.document.update({"y": 2}, fence=members.document.fence(), expect=Copy(0, "-", {}))
    assert members.agree().entries() == {"x": 2, "y": 1}


def test_asking_again_with_the_same_id_does_it_once(members: Residents) -> None:
    members.ready("a")
    fence = members.document.fence()
    first = members.document.update({"x": 1}, fence=fence, update_id="one")
    members.put("x", 2)
    assert members.document.update({"x": 1}, fence=fence, update_id="one") == first
    assert members.agree().value("x") == 2
    assert len(members.document.history()) == 2


def test_an_update_without_any_member_is_pending_and_made_once_there_is_one(members: Residents) -> None:
    with pytest.raises(UpdatePending) as pending:
        members.put("x", 1, timeout=0.2)
    members.ready("a")
    wait_until(lambda: members.document.pointer()[0])
    fence = members.document.current("x").fence("x")
    again = members.document.update({"x": 1}, fence=fence, update_id=pending.value.update_id)
    assert again == members.document.pointer()[0]


def test_a_value_that_is_not_json_is_refused_before_anything_is_asked(members: Residents) -> None:
    for value in (float("nan"), "\ud800"):
        with pytest.raises(ValueError):
            members.document.update({"x": value}, fence=members.document.fence())


def test_the_history_has_the_last_hundred_with_who_and_why(members: Residents) -> None:
    members.ready("a")
    began = time.time()
    for number in range(105):
        fence = members.document.fence()
        members.document.update({"x": number, "y": 0}, fence=fence, who=f"w{number}", why="so")
    history = members.document.history()
    assert [one.who for one in history] == [f"w{number}" for number in range(104, 4, -1)]
    assert (history[0].version, history[0].fence, history[0].why) == (members.document.pointer()[0], fence, "so")
    assert history[0].entries == ("x", "y")
    assert began - 5 < history[0].at.timestamp() < time.time() + 5
