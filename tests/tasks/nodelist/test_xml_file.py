import logging
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tasks import instants
from tasks.catalog.catalog import Catalog, Superseded
from tasks.member_node import safe_xml
from tasks.member_node.member import Member
from tasks.nodelist.harvest_dates import record_harvest
from tasks.nodelist.protocol import Dates
from tasks.nodelist.xml_file import NodelistUnreadable, XmlNodelist
from tasks.nodelist.xml_format import parse_nodelist, write_nodelist
from tests.tasks.conftest import IN_BOTH, SAMPLES, at

A, B = "urn:node:mnTestA", "urn:node:mnTestB"
HARVESTED = datetime(2024, 5, 14, 9, 31, 7, 412000, tzinfo=UTC)
LATER = datetime(2024, 6, 1, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "nodelist.xml"
    path.write_bytes((SAMPLES / "nodelist_v2_sample.xml").read_bytes())
    return path


@pytest.fixture
def nodelist(catalog: Catalog, path: Path) -> XmlNodelist:
    return XmlNodelist(catalog.engine, path)


def last_harvested(nodelist: XmlNodelist, member_id: str = A) -> datetime | None:
    member = nodelist.member(member_id)
    assert member is not None
    return member.last_harvested


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


def test_a_member_says_when_and_whether_it_is_to_be_synchronized(nodelist: XmlNodelist) -> None:
    cn, a, b = nodelist.members()
    assert a.schedule is not None
    assert a.schedule.parts == ("10", "0/3", "*", "*", "*", "?", "*")
    assert (a.synchronizable, a.api, b.api) == (True, "v2", "v1")
    assert cn.obstacle == "it is of type cn, not a member node"
    assert a.model_copy(update={"state": "down"}).obstacle == "its state is down"
    assert a.model_copy(update={"synchronize": False}).obstacle == "it asks not to be synchronized"
    assert a.model_copy(update={"services": a.services[:1]}).obstacle == "it does not offer MNRead"


def test_a_harvest_changes_the_dates_in_the_document_and_nothing_else(nodelist: XmlNodelist, path: Path) -> None:
    edit(path, "<name>River", '<!-- ours --><future kind="x">1</future><name>River')
    before = path.read_text(encoding="utf-8")
    nodelist.harvested(A, Dates(LATER), fence=1)
    expected = before.replace("2024-05-14T09:31:07.412+00:00", "2024-06-01T00:00:00.000Z")
    assert path.read_text(encoding="utf-8") == expected
    assert last_harvested(nodelist) == LATER
    assert last_harvested(nodelist, B) == datetime(2023, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)


def test_dates_of_a_member_that_had_none_stand_where_the_schema_wants_them(nodelist: XmlNodelist, path: Path) -> None:
    edit(path, "<lastHarvested>2023-12-31T23:59:59.999+00:00</lastHarvested>", "")
    edit(path, "<lastCompleteHarvest>1900-01-01T00:00:00.000+00:00</lastCompleteHarvest>", "")
    nodelist.harvested(B, Dates(None, LATER), fence=1)
    nodelist.harvested(B, Dates(HARVESTED), fence=1)
    node, member = parse_nodelist(path.read_bytes()).entries[B]
    assert [child.tag for child in node.findall("synchronization/*")] == [
        "schedule",
        "lastHarvested",
        "lastCompleteHarvest",
    ]
    assert (member.last_harvested, member.last_complete_harvest) == (HARVESTED, LATER)


@IN_BOTH
def test_last_harvested_moves_forward_only_and_a_reset_moves_it_back(nodelist: XmlNodelist) -> None:
    nodelist.harvested(A, Dates(LATER), fence=1)
    nodelist.harvested(A, Dates(HARVESTED), fence=2)
    assert last_harvested(nodelist) == LATER
    nodelist.reset(A)
    assert last_harvested(nodelist) == instants.NEVER
    with pytest.raises(KeyError):
        nodelist.reset("urn:node:nobody")


@IN_BOTH
def test_a_smaller_fence_is_refused_and_writes_nothing(nodelist: XmlNodelist, path: Path) -> None:
    nodelist.harvested(A, Dates(HARVESTED), fence=7)
    before = path.read_bytes()
    with pytest.raises(Superseded) as refused:
        nodelist.harvested(A, Dates(LATER), fence=6)
    assert (refused.value.member, refused.value.fence, refused.value.seen) == (A, 6, 7)
    assert (path.read_bytes(), last_harvested(nodelist)) == (before, HARVESTED)


@IN_BOTH
def test_a_run_that_began_before_a_reset_does_not_undo_it(nodelist: XmlNodelist) -> None:
    nodelist.reset(A)
    assert not nodelist.harvested(A, Dates(LATER), fence=1, started_from=HARVESTED)
    assert last_harvested(nodelist) == instants.NEVER
    assert nodelist.harvested(A, Dates(LATER), fence=1, started_from=instants.NEVER)


def test_each_invalid_entry_is_named_in_one_warning_and_left_out(
    nodelist: XmlNodelist, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edit(path, "http://127.0.0.1:18080", "ftp://127.0.0.1")
    edit(path, "urn:node:mnTestB", "urn:node:cnTestA")
    with caplog.at_level(logging.WARNING):
        assert [member.identifier for member in nodelist.members()] == ["urn:node:cnTestA"]
        nodelist.harvested("urn:node:cnTestA", Dates(LATER), fence=1)
        assert len(nodelist.members()) == 1
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 2
    assert "entry 2 (urn:node:mnTestA): base_url" in warnings[0]
    assert "entry 3 (urn:node:cnTestA): an entry above has the same identifier" in warnings[1]
    assert "mnTestA" in path.read_text(encoding="utf-8")


def test_an_edit_by_hand_is_read_in_and_its_reset_obeyed(nodelist: XmlNodelist, path: Path) -> None:
    nodelist.harvested(A, Dates(LATER), fence=1)
    version = nodelist.version()
    edit(path, "2024-06-01T00:00:00.000Z", "1900-01-01T00:00:00Z")
    edit(path, "Alpine Plot Archive", "Alpine Archive")
    assert nodelist.version() != version
    assert last_harvested(nodelist) == instants.NEVER
    assert [member.name for member in nodelist.members()][2] == "Alpine Archive"


def test_an_edit_that_leaves_the_dates_alone_does_not_bring_old_ones_back(
    nodelist: XmlNodelist, catalog: Catalog, path: Path
) -> None:
    assert last_harvested(nodelist) == HARVESTED
    # Another node has committed, and has not yet written the document that the operator is editing.
    record_harvest(catalog.engine, A, Dates(LATER), fence=3)
    edit(path, "River Chemistry Repository</name>", "Rivers</name>")
    assert last_harvested(nodelist) == LATER
    text = path.read_text(encoding="utf-8")
    assert "<name>Rivers</name>" in text
    assert "2024-06-01T00:00:00.000Z" in text


def test_a_late_writer_writes_the_newest(nodelist: XmlNodelist, catalog: Catalog, path: Path) -> None:
    early, late = XmlNodelist(catalog.engine, path), XmlNodelist(catalog.engine, path)
    early.version()
    record_harvest(catalog.engine, A, Dates(LATER), fence=1)
    late.harvested(B, Dates(LATER), fence=1)
    assert path.read_text(encoding="utf-8").count("2024-06-01T00:00:00.000Z") == 2
    assert early.version() == late.version() == nodelist.version()


@IN_BOTH
def test_many_writers_at_once_lose_no_date(catalog: Catalog, path: Path) -> None:
    template = parse_nodelist(path.read_bytes()).members[1]
    ids = [f"urn:node:mn{number}" for number in range(8)]
    path.write_bytes(write_nodelist([template.model_copy(update={"identifier": member_id}) for member_id in ids]))

    def write(engine: Engine, member_id: str) -> None:
        nodelist = XmlNodelist(engine, path)
        for fence in range(1, 6):
            nodelist.harvested(member_id, Dates(LATER.replace(second=fence)), fence=fence)

    threads = [threading.Thread(target=write, args=(catalog.engine, member_id)) for member_id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {member.identifier: member.last_harvested for member in parse_nodelist(path.read_bytes()).members}
    assert found == dict.fromkeys(ids, LATER.replace(second=5))


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_crash_at_any_step_of_writing_is_not_taken_for_an_edit(
    nodelist: XmlNodelist, catalog: Catalog, path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    nodelist.version()
    replaced = 0

    def crash(self: Path, target: Path) -> Path:
        nonlocal replaced
        replaced += 1
        if replaced == step:
            raise OSError("the power is gone")
        os.replace(self, target)
        return target

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", crash)
        with pytest.raises(OSError, match="power"):
            nodelist.harvested(A, Dates(LATER), fence=1)
    newest = LATER.replace(month=7)
    record_harvest(catalog.engine, A, Dates(newest), fence=2)
    assert last_harvested(XmlNodelist(catalog.engine, path)) == newest
    assert "2024-07-01" in path.read_text(encoding="utf-8")


def test_an_old_copy_on_another_host_does_not_bring_old_dates_back(
    nodelist: XmlNodelist, catalog: Catalog, tmp_path: Path
) -> None:
    nodelist.harvested(A, Dates(LATER), fence=1)
    copy = tmp_path / "copy.xml"
    copy.write_bytes((SAMPLES / "nodelist_v2_sample.xml").read_bytes())
    assert last_harvested(XmlNodelist(catalog.engine, copy)) == LATER


def test_a_half_copied_document_is_not_overwritten_and_the_last_good_one_serves(
    nodelist: XmlNodelist, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    version, whole = nodelist.version(), path.read_bytes()
    path.write_bytes(whole[:1500])
    assert nodelist.version() == version
    nodelist.harvested(A, Dates(LATER), fence=1)
    assert path.read_bytes() == whole[:1500]
    assert len([record for record in caplog.records if "cannot be read" in record.getMessage()]) == 1
    path.write_bytes(whole)
    assert last_harvested(nodelist) == LATER
    assert "2024-06-01" in path.read_text(encoding="utf-8")


def test_without_any_document_there_is_a_clear_error(catalog: Catalog, tmp_path: Path) -> None:
    nodelist = XmlNodelist(catalog.engine, tmp_path / "none.xml")
    with pytest.raises(NodelistUnreadable, match=r"none\.xml"):
        nodelist.members()
    nodelist.import_file(SAMPLES / "nodelist_v1_sample.xml")
    assert len(nodelist.members()) == 3


def test_an_import_without_dates_keeps_those_there_are(nodelist: XmlNodelist, tmp_path: Path) -> None:
    nodelist.harvested(A, Dates(LATER), fence=1)
    fresh = [
        member.model_copy(update={"last_harvested": None, "last_complete_harvest": None})
        for member in nodelist.members()
    ]
    (tmp_path / "fresh.xml").write_bytes(write_nodelist(fresh))
    nodelist.import_file(tmp_path / "fresh.xml")
    assert last_harvested(nodelist) == LATER


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


def test_the_document_keeps_its_permissions(nodelist: XmlNodelist, path: Path) -> None:
    os.chmod(path, 0o640)
    nodelist.harvested(A, Dates(LATER), fence=1)
    assert path.stat().st_mode & 0o777 == 0o640


def test_instants_are_cut_down_never_up() -> None:
    instant = instants.parse("2024-05-14T09:00:00.9836979Z")
    assert instants.full(instant) == "2024-05-14T09:00:00.983697Z"
    assert instants.brief(instant) == "2024-05-14T09:00:00.983Z"
    assert instants.parse("2024-05-14T09:00:00") == instants.parse("2024-05-14T11:00:00+02:00") == at(0)
    for wrong in ("2024-05-14T09:00:00 00:00", "yesterday", "9999-12-31T23:59:59-01:00", "2024-W01-1", ""):
        with pytest.raises(ValueError):
            instants.parse(wrong)
