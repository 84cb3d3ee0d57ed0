"""Members of a replica set: of one name, cloned, out of it."""

import shutil
from pathlib import Path

import pytest

from coordinator import Coordinator
from coordinator.core.finding import Finding
from coordinator.errors import Conflict
from tasks.documents import Documents
from tasks.documents.document import Document
from tasks.documents.errors import NotInReplicaSet
from tasks.documents.on_disk import Copies
from tasks.documents.replica import Replica
from tasks.documents.replica_set import ReplicaStatus
from tests.harness.waiting import wait_until
from tests.tasks.documents.replica_set import NAME, Residents


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
        look = members.document.replica_set.check_disks(set(members.set()))
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
    members.store._client.sadd(members.store.key("replicas", NAME), "dead#1")
    assert {one.code: one.message.partition(":")[0] for one in findings(members)} == {
        "document.outside": "full is out of its replica set",
        "document.silent": "dead is a member and dead",
    }
    members.store._client.srem(members.store.key("replicas", NAME), "dead#1")
    there = Document(members.store, NAME, Copies(root / "full", NAME))
    with pytest.raises(NotInReplicaSet, match="node full is out of the replica set of the document list") as raised:
        there.check()
    assert isinstance(raised.value, Conflict), "so it is tried again"
    root.unlink()
    members.expect("a", "full")
    there.check()
    members.document.check()
    assert not [one for one in members.document.replica_set.replicas() if one.why]
    assert findings(members) == []
    replica.stop()


def findings(members: Residents) -> list[Finding]:
    """What `doctor` says of the document."""
    settings = members.store.settings
    with Coordinator(url=settings.url, prefix=settings.prefix) as coordinator:
        documents = Documents(coordinator, members.root)
        documents.keep(NAME)
        return list(documents.findings())


def wait_until_out(members: Residents) -> list[ReplicaStatus]:
    def out() -> list[ReplicaStatus]:
        return [one for one in members.document.replica_set.replicas() if one.living and not one.inside and one.why]

    wait_until(out)
    return out()
