import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tasks import instants
from tasks.member_node import safe_xml
from tasks.member_node.member import Member
from tasks.nodelist.stores import Listed, NodelistStoreAway, Outdated, OwnStore, State, Write, WriteOutcome
from tasks.nodelist.xml_format import parse_nodelist, write_nodelist
from tasks.nodelist.xml_store import NodelistUnreadable, XmlStore
from tests.tasks.conftest import SAMPLES, at, in_threads

CN, A, B = "urn:node:cnTestA", "urn:node:mnTestA", "urn:node:mnTestB"
HARVESTED = datetime(2024, 5, 14, 9, 31, 7, 412000, tzinfo=UTC)
LATER = datetime(2024, 6, 1, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "nodelist.xml"
    path.write_bytes((SAMPLES / "nodelist_v2_sample.xml").read_bytes())
    return path


@pytest.fixture
def store(path: Path) -> XmlStore:
    return XmlStore(path)


def member(store: XmlStore, member_id: str) -> Member:
    state = store.read_one(member_id)
    assert state
    return state.listed.member


def changed(store: XmlStore, member_id: str, **fields: Any) -> WriteOutcome:
    """The outcome of a write of these fields."""
    base = State(Listed(member=member(store, member_id)))
    wanted = Listed(member=base.listed.member.model_copy(update=fields))
    return store.write({member_id: Write(base, wanted)})[member_id]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_member_goes_through_xml_and_json_unchanged(version: str) -> None:
    members = parse_nodelist((SAMPLES / f"nodelist_{version}_sample.xml").read_bytes()).members
    assert [member.identifier for member in members] == ["urn:node:cnTestA", A, B]
    assert parse_nodelist(write_nodelist(members, "v1" if version == "v1" else "v2")).members == members
    assert [Member.model_validate_json(member.model_dump_json()) for member in members] == members


def test_a_member_says_when_and_whether_it_is_to_be_synchronized(store: XmlStore) -> None:
    cn, a, b = (member(store, member_id) for member_id in (CN, A, B))
    assert a.schedule is not None
    assert a.schedule.parts == ("10", "0/3", "*", "*", "*", "?", "*")
    assert (a.synchronizable, a.api, b.api) == (True, "v2", "v1")
    assert cn.obstacle == "it is of type cn, not a member node"
    assert a.model_copy(update={"state": "down"}).obstacle == "its state is down"
    assert a.model_copy(update={"synchronize": False}).obstacle == "it asks not to be synchronized"
    assert a.model_copy(update={"services": a.services[:1]}).obstacle == "it does not offer MNRead"


def test_new_dates_change_nothing_else_in_the_document(store: XmlStore, path: Path) -> None:
    edit(path, "<name>River", '<!-- ours --><future kind="x">1</future><name>River')
    before = path.read_text(encoding="utf-8")
    changed(store, A, last_harvested=LATER)
    expected = before.replace("2024-05-14T09:31:07.412+00:00", "2024-06-01T00:00:00.000Z")
    assert path.read_text(encoding="utf-8") == expected
    assert member(store, B).last_harvested == datetime(2023, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)


def test_other_changes_leave_the_parts_of_the_entry_that_nobody_knows(store: XmlStore, path: Path) -> None:
    edit(path, "<name>River", '<future kind="x">1</future><name>River')
    changed(store, A, name="Rivers", last_harvested=LATER)
    assert '<future kind="x">1</future>' in path.read_text(encoding="utf-8")
    assert (member(store, A).name, member(store, A).last_harvested) == ("Rivers", LATER)


def test_dates_of_a_member_that_had_none_stand_where_the_schema_wants_them(store: XmlStore, path: Path) -> None:
    edit(path, "<lastHarvested>2023-12-31T23:59:59.999+00:00</lastHarvested>", "")
    edit(path, "<lastCompleteHarvest>1900-01-01T00:00:00.000+00:00</lastCompleteHarvest>", "")
    changed(store, B, last_complete_harvest=LATER)
    changed(store, B, last_harvested=HARVESTED)
    node, found = parse_nodelist(path.read_bytes()).entries[B]
    assert [child.tag for child in node.findall("synchronization/*")] == [
        "schedule",
        "lastHarvested",
        "lastCompleteHarvest",
    ]
    assert (found.last_harvested, found.last_complete_harvest) == (HARVESTED, LATER)


def test_each_invalid_entry_is_named_in_one_warning_and_left_out(
    store: XmlStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = OwnStore(store, lambda identity, name: None)
    edit(path, "http://127.0.0.1:18080", "ftp://127.0.0.1")
    edit(path, "urn:node:mnTestB", CN)
    with caplog.at_level(logging.WARNING):
        assert own.read().states.keys() == {CN}
        changed(store, CN, state="down")
        assert own.read().states.keys() == {CN}
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 2
    assert "entry 2 (urn:node:mnTestA): base_url" in warnings[0]
    assert "entry 3 (urn:node:cnTestA): an entry above has the same identifier" in warnings[1]
    assert "mnTestA" in path.read_text(encoding="utf-8")


def test_a_member_that_somebody_has_edited_since_is_not_overwritten(store: XmlStore, path: Path) -> None:
    read = {member_id: State(Listed(member=member(store, member_id))) for member_id in (A, B)}
    edit(path, "Alpine Plot Archive", "Alpine Archive")
    text = path.read_text(encoding="utf-8")
    down = {one: Listed(member=state.listed.member.model_copy(update={"state": "down"})) for one, state in read.items()}
    outcomes = store.write({member_id: Write(read[member_id], down[member_id]) for member_id in (A, B)})
    assert outcomes[A] == State(down[A])
    assert isinstance(outcomes[B], Outdated)
    assert (member(store, B).name, member(store, B).state) == ("Alpine Archive", "up")
    assert isinstance(store.write({"urn:node:gone": Write(read[A], None)})["urn:node:gone"], Outdated)
    assert text != path.read_text(encoding="utf-8")


def test_many_writers_at_once_lose_no_date(path: Path) -> None:
    template = parse_nodelist(path.read_bytes()).members[1]
    ids = [f"urn:node:mn{number}" for number in range(8)]
    path.write_bytes(write_nodelist([template.model_copy(update={"identifier": member_id}) for member_id in ids]))

    def write(member_id: str) -> None:
        for second in range(1, 6):
            changed(XmlStore(path), member_id, last_harvested=LATER.replace(second=second))

    in_threads(write, ids)
    found = {one.identifier: one.last_harvested for one in parse_nodelist(path.read_bytes()).members}
    assert found == dict.fromkeys(ids, LATER.replace(second=5))


def test_a_crash_before_the_file_is_replaced_leaves_the_old_one(
    store: XmlStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, read = path.read_bytes(), member(store, A)

    def crash(self: Path, target: Path) -> Path:
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", crash)
        with pytest.raises(NodelistStoreAway):
            changed(store, A, last_harvested=LATER)
    assert (path.read_bytes(), member(store, A)) == (before, read)


def test_without_any_document_there_is_a_clear_error(tmp_path: Path) -> None:
    store = XmlStore(tmp_path / "folder" / "none.xml")
    with pytest.raises(NodelistUnreadable, match=r"none\.xml"):
        store.read()
    store.replacement(SAMPLES / "nodelist_v1_sample.xml")
    assert len(store.read().states) == 3


def test_a_replacement_without_dates_keeps_those_there_are(store: XmlStore, tmp_path: Path) -> None:
    changed(store, A, last_harvested=LATER)
    undated = {"last_harvested": None, "last_complete_harvest": None}
    fresh = [state.listed.member.model_copy(update=undated) for state in store.read().states.values()]
    (tmp_path / "fresh.xml").write_bytes(write_nodelist(fresh))
    store.replacement(tmp_path / "fresh.xml")
    assert member(store, A).last_harvested == LATER


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not xml",
        b"<nodeList/>",
        b'<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>',
        b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>',
    ],
)
def test_what_is_no_node_list_is_refused(body: bytes) -> None:
    with pytest.raises(safe_xml.Unreadable):
        parse_nodelist(body)


def test_the_document_keeps_its_permissions(store: XmlStore, path: Path) -> None:
    os.chmod(path, 0o640)
    changed(store, A, last_harvested=LATER)
    assert path.stat().st_mode & 0o777 == 0o640


def test_instants_are_cut_down_never_up() -> None:
    instant = instants.parse("2024-05-14T09:00:00.9836979Z")
    assert instants.full(instant) == "2024-05-14T09:00:00.983697Z"
    assert instants.brief(instant) == "2024-05-14T09:00:00.983Z"
    assert instants.parse("2024-05-14T09:00:00") == instants.parse("2024-05-14T11:00:00+02:00") == at(0)
    for wrong in ("2024-05-14T09:00:00 00:00", "yesterday", "9999-12-31T23:59:59-01:00", "2024-W01-1", ""):
        with pytest.raises(ValueError):
            instants.parse(wrong)
