"""A node writes to the permanent store what syncs have committed; the syncs do not wait for that."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from coordinator.errors import StoreUnavailable
from tasks import instants
from tasks.nodelist import xml_store
from tasks.nodelist.protocol import SOON, WRITTEN, Dates
from tasks.nodelist.replicated import ReplicatedNodelist
from tasks.nodelist.store_notes import grouped, pending_members, with_intent
from tasks.nodelist.stores import Listed
from tasks.nodelist.verify import verify_all
from tasks.nodelist.write_back import AWAY, PAUSE, TURN, WriteBack
from tasks.nodelist.xml_format import parse_nodelist, write_nodelist
from tests.harness.redis import RedisServer
from tests.harness.slapd import SlapdServer
from tests.tasks.conftest import RIVER, OverLdap, day, river_with
from tests.tasks.nodelist.lists import Crash, Lists, calls, over_xml, setting

A, B = RIVER.identifier, "urn:node:other"


def commit(nodelist: ReplicatedNodelist, number: int, *names: str) -> list[str | None]:
    return [nodelist.harvested(name, Dates(day(number), None), fence=number) for name in names]


def in_store(lists: Lists, member_id: str) -> datetime | None:
    state = lists.nodelist.store.read_one(member_id)
    return state.listed.member.last_harvested if state else None


def fail(*args: object, **given: object) -> None:
    raise AssertionError("nobody was to call this")


@pytest.fixture
def many(redis_server: RedisServer, prefix: str, tmp_path: Path) -> Iterator[Lists]:
    """An XML document of 50 members, which were taken in."""
    path = tmp_path / "nodelist.xml"
    path.write_bytes(write_nodelist([river_with(identifier=f"urn:node:mn{number}") for number in range(50)]))
    with over_xml(path, redis_server.url(0), prefix, tmp_path) as lists:
        lists.nodelist.refresh()
        yield lists


def test_a_sync_waits_for_no_store_and_is_told_so(lists: Lists, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        for name in ("read", "read_one", "write"):
            patch.setattr(lists.nodelist.store, name, fail)
        assert commit(lists.nodelist, 1, A, B) == [SOON, SOON]
        assert commit(lists.nodelist, 1, A) == [SOON]  # nothing new; the store lacks it still
    assert lists.dates(A).last_harvested == day(1)
    assert WriteBack(lists.nodelist, "one").step() == PAUSE
    lists.agree()
    assert commit(lists.nodelist, 1, A) == [WRITTEN]


def test_a_comparison_waits_for_what_is_about_to_be_written_and_names_a_real_difference(many: Lists) -> None:
    names, nodes, store = sorted(many.nodelist.listed()), {"one", "two"}, many.nodelist.store.name
    writer, waited = WriteBack(many.writer("node"), "one"), list[str]()

    def written(differences: list[str]) -> None:
        waited.extend(grouped(differences, store))
        writer.step()

    commit(many.nodelist, 1, *names)
    assert verify_all(many.nodelist, nodes, 60, written).differences == []
    assert waited == [f"50 members, such as {names[0]}: {store} lacks their newest version: {SOON}"]

    commit(many.nodelist, 2, names[0])
    many.outside(names[1], name="Renamed")
    of_store = f"{names[1]}: name: {store} has Renamed, and {RIVER.name} is committed"
    found = verify_all(many.nodelist, nodes, 0, fail)
    assert found.differences == [f"{names[0]}: {store} lacks version {found.version}: {SOON}", of_store]
    assert verify_all(many.nodelist, frozenset(), 60, fail).differences == found.differences  # nobody would write it
    assert verify_all(many.nodelist, nodes, 60, written).differences == [of_store]
    assert len(waited) == 2


def test_one_step_writes_a_document_once_for_all_that_was_committed(
    many: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sorted(many.nodelist.listed())
    writer = WriteBack(many.writer("node"), "one")
    commit(many.nodelist, 1, *names)
    written: list[str] = []
    real = xml_store.replace
    monkeypatch.setattr(xml_store, "replace", lambda path, body: (written.append(path.name), real(path, body)))
    writer.step()
    assert written.count("nodelist.xml") == 1
    many.agree()
    monkeypatch.setattr(xml_store, "parse_nodelist", fail)  # its own document needs no second look
    commit(many.nodelist, 2, *names[:7])
    writer.step()
    assert written.count("nodelist.xml") == 2
    monkeypatch.undo()
    many.agree()


def test_a_write_back_keeps_its_turn_after_a_long_write_and_during_its_pause(
    many: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodelist = many.writer("node")
    writer, store = WriteBack(nodelist, "one"), nodelist.document.store
    turn, write = store.key("turn", nodelist.document.name), nodelist.reconciler.write_back_all

    def slowly(names: list[str]) -> bool:
        done = write(names)
        assert store._client.pexpire(turn, 1000), "nearly over"
        return done

    monkeypatch.setattr(nodelist.reconciler, "write_back_all", slowly)
    commit(many.nodelist, 1, *sorted(many.nodelist.listed())[:3])
    pause = writer.step()
    assert TURN * 1000 < store._client.pttl(turn) <= (TURN + pause) * 1000


def test_a_step_that_finds_nothing_new_asks_for_no_turn_and_no_store(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = WriteBack(lists.nodelist, "one")
    for name in ("read", "read_one", "write"):
        monkeypatch.setattr(lists.nodelist.store, name, fail)
    assert writer.step() == PAUSE
    assert not lists.document.store._client.exists(lists.document.store.key("turn", "nodelist"))


def test_one_node_at_a_time_writes_back_and_another_goes_on_where_that_one_died(lists: Lists) -> None:
    one, two = WriteBack(lists.nodelist, "one"), WriteBack(lists.writer("two"), "two")
    commit(lists.nodelist, 1, A)
    one.step()
    commit(lists.nodelist, 2, A)
    two.step()
    assert lists.document.behind().keys() == {f"dates/{A}"}
    store = lists.document.store
    assert 0 < store._client.pttl(store.key("turn", "nodelist")) <= 12_000
    store._client.delete(store.key("turn", "nodelist"))  # it is over
    two.step()
    lists.agree()


def test_nodes_that_write_back_at_once_lose_nothing(lists: Lists, monkeypatch: pytest.MonkeyPatch) -> None:
    late = lists.writer("late")
    real = late.store.write

    def later(writes: Any) -> Any:
        """It was stopped before the write; meanwhile its turn was over."""
        commit(lists.nodelist, 3, A, B)
        lists.nodelist.reconciler.write_back_pending()
        return real(writes)

    commit(lists.nodelist, 1, A, B)
    monkeypatch.setattr(late.store, "write", later)
    WriteBack(late, "late").step()
    monkeypatch.undo()
    lists.nodelist.refresh()
    assert (lists.dates(A).last_harvested, lists.dates(B).last_harvested) == (day(3), day(3))
    lists.agree()


def test_after_a_crash_at_any_step_of_a_write_back_the_next_one_has_the_store_as_committed(lists: Lists) -> None:
    number = crashed = 0
    while crashed == number:
        number += 1
        dead = lists.writer(f"dead{number}", "two")
        commit(lists.nodelist, number, A, B)
        lists.outside(A, description=f"by hand {number}")
        steps = calls(dead, "behind stored_of note followed current run", "read read_one write")
        with pytest.MonkeyPatch.context() as patch:
            Crash(patch, number - 1, [*steps, (xml_store, "replace")])
            try:
                dead.reconciler.write_back_all([A, B])
            except InterruptedError:
                crashed += 1
        assert lists.nodelist.reset(B) == WRITTEN  # what the dead one wrote is not taken for an edit that came later
        assert in_store(lists, B) == instants.NEVER, number
        lists.writer(f"next{number}", "two").reconciler.write_back_all([A, B])
        lists.nodelist.refresh()
        assert lists.listed(A).member == river_with(description=f"by hand {number}", last_harvested=day(number)), number
        assert lists.dates(B).last_harvested == instants.NEVER, number
        lists.agree()
    assert crashed > 12


def test_a_refresh_mends_what_a_late_write_has_spoilt_though_the_one_before_died_at_it(lists: Lists) -> None:
    lists.sync(day(1), 1, A)
    document, run = lists.document, lists.document.run()
    late = Listed(member=river_with(last_harvested=day(9)))
    document.note(A, note := document.stored_of(A), with_intent(note, late, run))
    lists.outside(A, last_harvested=day(9))  # a writer of ours that was stopped for long
    dead = lists.writer("dead", "two")
    with pytest.MonkeyPatch.context() as patch:
        Crash(patch, 0, calls(dead, "", "write"))
        with pytest.raises(InterruptedError):
            dead.refresh()
    assert in_store(lists, A) == day(9)
    assert lists.nodelist.refresh() == []
    assert lists.dates(A).last_harvested == day(1)
    lists.agree()


def test_a_document_that_could_not_be_written_gets_all_the_next_time(
    many: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, writer = sorted(many.nodelist.listed()), WriteBack(many.nodelist, "one")
    commit(many.nodelist, 1, *names)
    writer.step()

    def full(path: Path, body: bytes) -> None:
        raise OSError("no space left on device")

    commit(many.nodelist, 2, names[0])
    with monkeypatch.context() as patch:
        patch.setattr(xml_store, "replace", full)
        assert writer.step() == AWAY
    many.nodelist.refresh()
    entries = parse_nodelist((tmp_path / "nodelist.xml").read_bytes()).entries
    assert [Dates.of(entries[name][1]).last_harvested for name in names[:2]] == [day(2), day(1)]


def test_an_edit_beside_syncs_is_found_and_merged(lists: Lists) -> None:
    commit(lists.nodelist, 1, A, B)
    writer = WriteBack(lists.nodelist, "one")
    writer.step()
    commit(lists.nodelist, 2, A, B)
    lists.outside(A, description="by hand")
    lists.outside(B, last_harvested=instants.NEVER)  # a reset
    writer.step()
    assert lists.listed(A).member == river_with(description="by hand", last_harvested=day(2))
    assert lists.dates(B).last_harvested == instants.NEVER
    lists.agree()


def test_a_document_that_is_half_copied_is_not_overwritten_and_the_reason_is_told(many: Lists, tmp_path: Path) -> None:
    path, names = tmp_path / "nodelist.xml", sorted(many.nodelist.listed())
    whole = path.read_bytes()
    path.write_bytes(whole[:1500])
    commit(many.nodelist, 1, *names)
    writer = WriteBack(many.nodelist, "one")
    assert writer.step() == AWAY
    assert path.read_bytes() == whole[:1500]
    [reason] = {one.reason for one in pending_members(many.document).values()}
    assert reason.startswith(f"{path}: no node list can be read there: not well-formed")
    assert commit(many.nodelist, 2, names[0]) == [reason]
    path.write_bytes(whole)
    many.nodelist.refresh()
    many.agree()
    assert many.dates(names[0]).last_harvested == day(2)


def test_what_ldap_lacks_since_it_is_away_is_tried_once_and_left_to_the_refresh(
    slapd: SlapdServer, over_ldap: OverLdap, monkeypatch: pytest.MonkeyPatch
) -> None:
    with over_ldap() as lists:
        for member in (RIVER, river_with(identifier=B)):
            lists.outside_adds(member)
        lists.nodelist.refresh()
        slapd.kill()
        writer = WriteBack(lists.nodelist, "one")
        commit(lists.nodelist, 1, A, B)
        assert writer.step() == AWAY
        assert all("Can't contact" in one.why for one in pending_members(lists.document).values())
        assert len(lists.document.behind()) == 2
        with monkeypatch.context() as patch:
            patch.setattr(lists.nodelist.store, "write", fail)
            assert writer.step() == PAUSE
        slapd.start()
        lists.nodelist.refresh()
        lists.agree()


def test_a_member_is_read_alone_from_redis_and_from_the_disk_while_redis_is_away(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = lists.writer("node")
    here.listed()
    with monkeypatch.context() as patch:
        patch.setattr(here.document, "read", fail)
        lists.sync(day(1), 1, A)
        assert here.member(A) == river_with(last_harvested=day(1))
        lists.nodelist.change(B, setting(state="down"), why="maintenance")
        assert here.member(B) == river_with(identifier=B, state="down")
    assert here.member("urn:node:nobody") is None

    def away(*args: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(here.document.store, "call", away)
    assert here.member(A) == river_with(last_harvested=day(1))


def test_a_redis_that_lost_its_end_gives_no_older_member(lists: Lists) -> None:
    lists.nodelist.change(A, lambda one: one and one.model_copy(update={"approved": False}), why="trouble")
    store, here = lists.document.store, lists.writer("node")
    for replica in lists.replicas:
        replica.stopping.set()
    for replica in lists.replicas:
        replica.stop()
    raw = store._client.hget(store.key("document", "nodelist"), f"member/{A}").decode()
    store._client.hset(
        store.key("document", "nodelist"), f"member/{A}", raw.replace('"approved":false', '"approved":true')
    )
    store._client.set(store.key("pointer", "nodelist"), "1 -")
    assert here.member(A) is None
