"""What others change in the permanent store goes into the nodelist, whatever runs or dies beside it."""

import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks.member_node.member import Property, Restriction, Service
from tasks.nodelist import store_notes
from tasks.nodelist.replicated import ReplicatedNodelist
from tasks.nodelist.stores import Listed, NodelistStoreAway
from tasks.nodelist.xml_format import write_nodelist
from tests.harness.redis import RedisServer
from tests.harness.slapd import SlapdServer, dn
from tests.tasks.conftest import RIVER, OverLdap, day, river_with
from tests.tasks.nodelist.lists import Crash, Lists, calls, change, over_xml, setting, synced

A, B = RIVER.identifier, "urn:node:other"


SERVICES = tuple(
    Service(name=name, version="v2", restrictions=(Restriction(method="get", subjects=("CN=x",)),))
    for name in ("MNCore", "MNRead", "MNStorage")
)
PROPERTIES = (Property(key="new", value="1"), RIVER.properties[0].model_copy(update={"value": "other"}))
WHOLE = setting(services=SERVICES, properties=PROPERTIES, state="down")
NEW = Listed(member=river_with(identifier="urn:node:new", services=SERVICES))

ACTS: dict[str, tuple[Callable[[ReplicatedNodelist], object], Callable[[Lists], bool]]] = {
    "a sync": (
        lambda one: synced(one, A, day(9), 9),
        lambda lists: lists.dates(A).last_harvested == day(9),
    ),
    "a change of many entries": (
        lambda one: one.change(A, WHOLE, why="all"),
        lambda lists: lists.listed(A).member == river_with(services=SERVICES, properties=PROPERTIES, state="down"),
    ),
    "an addition": (
        lambda one: one.change("urn:node:new", lambda _: NEW, why="new"),
        lambda lists: lists.nodelist.listed().get("urn:node:new") == NEW,
    ),
    "a removal": (
        lambda one: one.change(A, lambda _: None, why="gone"),
        lambda lists: A not in lists.nodelist.listed(),
    ),
}
SOURCE = "read read_one write"
DOCUMENT = "update behind stored stored_of note followed current"


def crashes(lists: Lists, act: Callable[[ReplicatedNodelist], object]) -> Iterator[int]:
    """After each crash of it, one call later than before."""
    for after in itertools.count():
        dead = lists.writer(f"dead{after}", "two")
        steps = calls(dead, DOCUMENT, SOURCE)
        if directory := getattr(dead.store, "_directory", None):
            steps += [(directory._connection, name) for name in ("add", "modify", "delete")]
        with pytest.MonkeyPatch.context() as patch:
            Crash(patch, after, steps)
            try:
                act(dead)
                return
            except InterruptedError:
                yield after


@pytest.mark.parametrize("act", ACTS)
def test_after_a_crash_at_any_step_the_next_refresh_has_the_store_as_committed(lists: Lists, act: str) -> None:
    do, done = ACTS[act]
    seen = set()
    for after in crashes(lists, do):
        before = lists.nodelist.listed()
        lists.nodelist.refresh()
        assert lists.nodelist.listed() == before, after  # nothing of what was committed is taken back
        lists.agree()
        seen.add(done(lists))
        undo = {"a sync": lambda one: None, "an addition": lambda one: one.change(NEW.member.identifier, gone, why="")}
        undo.get(act, lambda one: one.change(A, lambda _: Listed(member=RIVER), why="again"))(lists.nodelist)
        if act == "a sync":
            lists.nodelist.reset(A)
        lists.agree()
    assert seen == {True, False}


def gone(one: Listed | None) -> None:
    return None


def test_after_a_crash_at_any_step_of_a_refresh_the_next_one_takes_in_the_same(lists: Lists) -> None:
    number = 0

    def disturb() -> None:
        """An outside change of one member, and of the other a commit that the store lacks."""
        nonlocal number
        number += 1
        lists.outside(A, description=f"by hand {number}")
        with pytest.MonkeyPatch.context() as away:
            away.setattr(lists.nodelist.reconciler, "write_back", lambda member_id: "later")
            lists.nodelist.change(B, setting(name=f"ours {number}", services=SERVICES[: number % 3]), why="ours")

    disturb()
    for after in crashes(lists, lambda one: one.refresh()):
        lists.nodelist.refresh()
        assert lists.listed(A).member == river_with(description=f"by hand {number}"), after
        assert lists.listed(B).member.name == f"ours {number}", after
        assert len(lists.listed(B).member.services) == number % 3
        lists.agree()
        assert lists.nodelist.refresh() == []
        disturb()
    assert number > 8


def test_a_refresh_tells_and_takes_in_what_is_new_changed_or_gone(
    lists: Lists, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tasks")
    version = lists.nodelist.version()
    lists.outside_adds(river_with(identifier="urn:node:new"))
    lists.outside(A, state="down", schedule=None)
    lists.outside(B)
    said = lists.nodelist.refresh()
    assert {line for line in said if "schedule" not in line} == {
        "urn:node:new is new",
        f"{A}: state: up → down",
        f"{B} is gone",
    }
    assert any(line.startswith(f"{A}: schedule: ") for line in said)
    assert all(f"nodelist: {line}" in caplog.messages for line in said)
    assert lists.nodelist.version() != version
    assert lists.listed(A).member.state == "down"
    assert B not in lists.nodelist.listed()
    assert lists.nodelist.refresh() == []
    lists.agree()


def test_a_refresh_that_finds_nothing_new_commits_nothing_and_parses_no_note(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = lists.document.pointer()
    monkeypatch.setattr(store_notes, "parse_note", None)
    assert lists.nodelist.refresh() == []
    assert lists.document.pointer() == version


def test_dates_alone_do_not_change_the_version_that_schedules_go_by(lists: Lists) -> None:
    version = lists.nodelist.version()
    lists.sync(day(1), 1, A)
    assert lists.nodelist.version() == version
    lists.nodelist.change(A, change(lambda _: {"state": "down"}), why="maintenance")
    assert lists.nodelist.version() != version


def test_a_store_that_is_empty_though_it_was_not_changes_nothing(lists: Lists) -> None:
    listed, version = lists.nodelist.listed(), lists.document.pointer()
    for member_id in listed:
        lists.outside(member_id)
    with pytest.raises(NodelistStoreAway, match="is empty now, and was not before"):
        lists.nodelist.refresh()
    assert (lists.nodelist.listed(), lists.document.pointer()) == (listed, version)


def test_an_import_replaces_the_list_and_keeps_dates_and_approval(lists: Lists, tmp_path: Path) -> None:
    lists.sync(day(1), 1, A)
    path = tmp_path / "import.xml"
    undated = {"last_harvested": None, "last_complete_harvest": None}
    path.write_bytes(
        write_nodelist([river_with(name="Imported", **undated), river_with(identifier="urn:node:new", **undated)])
    )
    lists.nodelist.import_file(path)
    assert lists.nodelist.listed().keys() == {A, "urn:node:new"}
    assert lists.listed(A).member.name == "Imported"
    assert lists.dates(A).last_harvested == day(1)
    lists.agree()


def test_a_store_that_names_no_dates_moves_none_back(lists: Lists) -> None:
    lists.sync(day(1), 1, A)
    lists.outside(A)
    lists.outside_adds(river_with(name="From a registry", last_harvested=None, last_complete_harvest=None))
    lists.nodelist.refresh()
    assert (lists.listed(A).member.name, lists.dates(A).last_harvested) == ("From a registry", day(1))
    lists.agree()


def test_a_suspended_member_stays_so_over_syncs_and_refreshes(lists: Lists) -> None:
    lists.nodelist.change(A, lambda one: one and one.model_copy(update={"approved": False}), why="trouble")
    assert lists.nodelist.member(A) is None
    lists.sync(day(1), 1, A)
    lists.outside(A, description="by hand")
    lists.nodelist.refresh()
    assert not lists.listed(A).approved
    assert lists.listed(A).member == river_with(last_harvested=day(1), description="by hand")
    assert lists.document.behind() == {}


def test_a_bad_entry_in_ldap_is_named_once_left_as_committed_and_taken_in_once_mended(
    slapd: SlapdServer, over_ldap: OverLdap, caplog: pytest.LogCaptureFixture
) -> None:
    with over_ldap() as lists:
        for member in (RIVER, river_with(identifier=B)):
            lists.outside_adds(member)
        lists.nodelist.refresh()
        listed = lists.nodelist.listed()
        slapd.replace(dn(A), d1NodeLastHarvested="yesterday", d1NodeState="down")
        slapd.replace(dn(B), d1NodeId="urn:node:else")
        for _ in range(2):
            lists.nodelist.refresh()
        assert lists.nodelist.listed() == listed
        named = [one for one in caplog.messages if "left out" in one]
        assert len(named) == 2
        assert lists.sync(day(3), 1, A)  # committed, and waits until the entry can be understood
        assert lists.document.behind().keys() == {f"dates/{A}"}
        slapd.replace(dn(A), d1NodeLastHarvested="2024-06-01T00:00:00Z")
        slapd.replace(dn(B), d1NodeId=B, d1NodeState="unknown")
        lists.nodelist.refresh()
        assert lists.listed(A).member == river_with(state="down", last_harvested=day(3))
        assert lists.listed(B).member.state == "unknown"
        lists.agree()


def test_a_bad_entry_in_a_document_is_left_as_committed_and_taken_in_once_mended(
    redis_server: RedisServer, prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "nodelist.xml"
    path.write_bytes(write_nodelist([RIVER, river_with(identifier=B)]))
    with over_xml(path, redis_server.url(0), prefix, tmp_path) as lists:
        lists.nodelist.refresh()
        listed, good = lists.nodelist.listed(), path.read_text()
        path.write_text(good.replace('state="up"', 'state="asleep"', 1))
        for _ in range(2):
            lists.nodelist.refresh()
        assert lists.nodelist.listed() == listed
        assert len([one for one in caplog.messages if "left out" in one]) == 1
        assert lists.sync(day(3), 1, A)
        lists.nodelist.refresh()
        assert lists.listed(A).member == river_with(last_harvested=day(3))
        path.write_text(path.read_text().replace('state="asleep"', 'state="down"'))
        lists.nodelist.refresh()
        assert lists.listed(A).member == river_with(state="down", last_harvested=day(3))
        lists.agree()
