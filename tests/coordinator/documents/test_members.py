"""Members of a replica set: of an earlier version, of one name, cloned, out of it."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu.utils.json import loads

from coordinator.documents.copies import Copies
from coordinator.documents.copy import checksum, file_of
from coordinator.documents.document import Document
from coordinator.documents.replica import Replica, Update
from coordinator.documents.replica_set import Keeper
from coordinator.errors import Conflict, NotInReplicaSet
from coordinator.store.client import Store
from tests.coordinator.documents.replica_set import NAME, Residents
from tests.harness.waiting import wait_until


class Former(threading.Thread):
    """A member of an earlier version: it has no identity, and reports the checksum of a file."""

    def __init__(self, members: Residents) -> None:
        super().__init__(daemon=True)
        self.store, self.document = members.store, members.document
        self.over = threading.Event()
        self.store.client.hset(self.store.key("replicas", NAME), "former", 17)

    def run(self) -> None:
        client, key = self.store.client, self.store.key
        with client.pubsub() as heard:
            heard.subscribe(key("member", NAME, "former"))
            while not self.over.wait(0.01):
                heard.get_message()
                version, updates = client.hmget(key("prepare", NAME), "version", "updates")
                if version and not client.hexists(key("acked", NAME), "former"):
                    given: list[Update] = loads(updates)
                    state = dict(self.document.fetch().state)
                    for update in given:
                        state |= {entry: f"{fence} {text}" for entry, text, _, fence in update["changes"]}
                    client.hset(key("acked", NAME), "former", checksum("", NAME, int(version), state))


@pytest.fixture
def former(members: Residents) -> Iterator[Former]:
    members.ready("a", "b")
    one = Former(members)
    one.start()
    yield one
    one.over.set()
    one.join()


def kinds(store: Store) -> tuple[int, bool]:
    """The length of the checksum in the pointer, and whether there is a sum."""
    pointer = store.client.get(store.key("pointer", NAME)) or b""
    return len(pointer.partition(b" ")[2]), bool(store.client.exists(store.key("sum", NAME)))


def test_beside_a_member_of_an_earlier_version_all_report_what_it_does(members: Residents, former: Former) -> None:
    version = members.put("x", 1)
    committed = members.document.fetch()
    assert committed.sha == checksum("", NAME, version, committed.state)
    assert kinds(members.store) == (64, False)
    assert file_of(NAME, version, committed.state)
    members.agree()
    assert [member.document.read().stale for member in members.all] == [False, False]
    assert members.set() == ["a", "b", "former"]


def test_once_it_has_left_the_others_report_sums_and_it_may_come_back(members: Residents, former: Former) -> None:
    members.put("x", 1)
    former.over.set()
    former.join()
    members.put("x", 2)  # without it
    members.put("x", 3)
    assert kinds(members.store) == (1, True)
    members.agree()
    pointer = members.store.key("pointer", NAME)
    copy = members.document.fetch()
    own = checksum("", NAME, copy.version, copy.state)
    members.store.client.set(pointer, f"{copy.version} {own}")  # as its library does where any checksum will do
    wait_until(lambda: members.document.pointer() == (copy.version, own))
    back = Former(members)
    back.start()
    members.put("x", 4)
    back.over.set()
    back.join()
    assert members.agree().value("x") == 4
    assert kinds(members.store) == (64, False)


def test_two_machines_of_one_name_are_two_members(members: Residents, tmp_path: Path) -> None:
    members.ready("beat@cn")
    other = Residents(members.store.settings.url, members.store.settings.prefix, tmp_path / "other host")
    with other:
        other.start("beat@cn")
        wait_until(lambda: len(members.set()) == 2)
        assert {name.partition("#")[0] for name in members.set()} == {"beat@cn"}
        members.put("x", 1)
        for member in (*members.all, *other.all):
            assert (member.document.read().value("x"), member.document.read().stale) == (1, False)
        look = members.document.replica_set.look(set(members.set()))
        assert sorted(look) == members.set()


def test_a_copied_folder_gets_an_identity_of_its_own(members: Residents, tmp_path: Path) -> None:
    (only,) = members.ready("beat@cn")
    members.put("x", 1)
    shutil.copytree(members.root, tmp_path / "clone")
    identity = only.copies.member
    clone = Residents(members.store.settings.url, members.store.settings.prefix, tmp_path / "clone")
    with clone:
        (second,) = clone.start("beat@cn")
        assert second.copies.member.startswith("beat@cn#")
        wait_until(lambda: len(members.set()) == 2)
        assert second.copies.member != identity
        assert only.copies.member == identity
        members.put("x", 2)
        assert [one.document.read().value("x") for one in (only, second)] == [2, 2]


def test_a_member_that_starts_again_on_its_folder_is_the_same(members: Residents, tmp_path: Path) -> None:
    members.ready("a", "b")
    members.put("x", 1)
    first = members.all[1].copies.member
    members.all.pop().kill()
    members.start("b")
    members.expect("a", "b")
    assert members.all[1].copies.member == first


def test_one_that_cannot_write_is_out_says_why_and_its_jobs_stop(members: Residents, tmp_path: Path) -> None:
    root = tmp_path / "in the way"
    root.write_text("")
    replica = Replica(members.store, NAME, "full", root)
    replica.start()
    members.ready("a")
    (keeper,) = wait_until_out(members)
    assert (keeper.name, keeper.inside) == ("full", False)
    assert "it cannot write its disk" in keeper.why
    there = Document(members.store, NAME, Copies(root / "full", NAME))
    with pytest.raises(NotInReplicaSet, match="node full is out of the replica set of the document list") as raised:
        there.check()
    assert isinstance(raised.value, Conflict), "so it is tried again"
    root.unlink()
    members.expect("a", "full")
    there.check()
    members.document.check()
    assert not [one for one in members.document.replica_set.keepers() if one.why]
    replica.stop()


def wait_until_out(members: Residents) -> list[Keeper]:
    def out() -> list[Keeper]:
        return [one for one in members.document.replica_set.keepers() if one.living and not one.inside and one.why]

    wait_until(out)
    return out()
