"""From a member to entries and back, without a server."""

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from tasks import instants
from tasks.member_node.member import Member, MemberSchedule, Ping, Property, ReplicationPolicy, Restriction, Service
from tasks.nodelist.ldap.changes import changes
from tasks.nodelist.ldap.entries import NOTE, BadEntry, entries_of, member_of
from tasks.nodelist.ldap.schema import Path, rdn
from tests.tasks.conftest import RIVER, SAMPLE, river_with

HARD = ',+"\\<>;= #ÄÖÜäöüß * ( ) /'

words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(
    lambda text: text.strip()
)
few = st.lists(words, max_size=3).map(tuple)
moments = st.one_of(st.none(), st.datetimes(timezones=st.just(UTC)))
numbers = st.one_of(st.none(), st.integers(0, 2**70))
restrictions = st.builds(Restriction, method=words, subjects=few)
services = st.builds(
    Service,
    name=words,
    version=words,
    available=st.booleans(),
    restrictions=st.lists(restrictions, max_size=3).map(tuple),
)
properties = st.builds(
    Property,
    key=words,
    type=st.one_of(st.none(), st.just(""), words),
    value=st.one_of(st.just(""), st.just(" "), words),
)
policies = st.builds(
    ReplicationPolicy, max_object_size=numbers, space_allocated=numbers, allowed_nodes=few, allowed_formats=few
)
members = st.builds(
    Member,
    identifier=words.map(lambda text: "urn:node:" + "".join(text.split())),
    name=words,
    description=words,
    base_url=st.just("https://member.example.org/mn"),
    type=st.sampled_from(["mn", "cn", "Monitor"]),
    state=st.sampled_from(["up", "down", "unknown"]),
    replicate=st.booleans(),
    synchronize=st.booleans(),
    services=st.lists(services, max_size=3).map(tuple),
    schedule=st.one_of(st.none(), st.builds(MemberSchedule, **dict.fromkeys(MemberSchedule.model_fields, words))),
    last_harvested=moments,
    last_complete_harvest=moments,
    replication_policy=st.one_of(st.none(), policies),
    ping=st.one_of(st.none(), st.builds(Ping, success=st.one_of(st.none(), st.booleans()), last_success=moments)),
    subjects=few,
    contact_subjects=few,
    properties=st.lists(properties, max_size=3).map(tuple),
)


def applied(known: dict[Path, Any], wanted: dict[Path, Any]) -> dict[Path, Any]:
    """What a server has after the changes."""
    changed, added, vanished = changes(known, wanted)
    after = {path: dict(entry) for path, entry in known.items() if path not in vanished} | added
    for path, attributes in changed.items():
        after[path] = {name: values for name, values in {**after[path], **attributes}.items() if values}
    return after


@settings(max_examples=150, deadline=None)
@given(members, members, st.booleans())
def test_whatever_a_member_holds_comes_back_also_over_what_was_there(
    one: Member, other: Member, approved: bool
) -> None:
    entries = entries_of(one, approved=approved)
    assert member_of(entries) == (one, approved)
    assert not any(changes(entries, entries_of(one, approved=approved, known=entries)))
    other = other.model_copy(update={"identifier": one.identifier})
    after = applied(entries, entries_of(other, approved=not approved, known=entries))
    assert member_of(after) == (other, not approved)


@pytest.mark.parametrize("member", SAMPLE, ids=lambda member: member.identifier)
def test_members_round_trip_between_ldap_xml_and_json(member: Member) -> None:
    from_ldap, _ = member_of(entries_of(member, approved=True))
    assert Member.from_xml(from_ldap.to_xml("v2")) == member
    assert Member.model_validate_json(from_ldap.model_dump_json()) == member
    from_v1 = Member.from_xml(etree.fromstring(etree.tostring(from_ldap.to_xml("v1"))))
    assert member_of(entries_of(from_v1, approved=True))[0] == member.model_copy(update={"properties": ()})


def test_entries_are_laid_out_and_spelled_as_dataone_does() -> None:
    entries = entries_of(river_with(last_complete_harvest=instants.NEVER), approved=False)
    node = entries[()]
    assert node["objectClass"] == ("top", "device", "d1Node")
    assert node["cn"] == node["d1NodeId"] == ("urn:node:mnTestA",)
    assert (node["d1NodeSynchronize"], node["d1NodeApproved"]) == (("TRUE",), ("FALSE",))
    assert node["d1NodeLastHarvested"] == ("2024-05-14T09:31:07.412+00:00",)
    assert node["d1NodeLastCompleteHarvest"] == ("1900-01-01T00:00:00Z",)
    assert node["d1NodeSynSchdMin"] == ("0/3",)
    service = rdn("d1NodeServiceId", "MNReplication-v2")
    assert entries[service,]["d1NodeServiceAvailable"] == ("TRUE",)
    assert entries[service, rdn("d1ServiceMethodName", "replicate")]["d1AllowedSubject"] == (
        "CN=urn:node:cnTestA,DC=dataone,DC=org",
    )
    assert entries[rdn("d1NodePropertyId", "CN_node_name"),]["d1NodePropertyValue"] == ("River Chemistry Repository",)


def test_a_date_keeps_its_microseconds_within_what_the_schema_has_room_for() -> None:
    (text,) = entries_of(river_with(last_harvested=datetime(2024, 5, 14, 9, 31, 7, 412345, UTC)), approved=True)[()][
        "d1NodeLastHarvested"
    ]
    assert text == "2024-05-14T09:31:07.412345+00:00"
    assert len(text) <= 32


def test_another_spelling_of_the_same_is_not_written() -> None:
    known = entries_of(RIVER, approved=True)
    known[()] |= {
        "d1NodeLastHarvested": ("2024-05-14T11:31:07.412+02:00",),
        "d1NodeBaseURL": (RIVER.base_url + "/",),
        "d1NodeName": (f" {RIVER.name} ",),
    }
    assert member_of(known) == (RIVER, True)
    assert not any(changes(known, entries_of(RIVER, approved=True, known=known)))


def test_entries_that_others_named_otherwise_keep_their_names_and_what_we_do_not_know() -> None:
    known = entries_of(RIVER, approved=True)
    strange = rdn("d1NodeServiceId", "the river's core")
    known[strange,] = known.pop((rdn("d1NodeServiceId", "MNCore-v1"),)) | {"d1NodeServiceId": ("the river's core",)}
    known[()] |= {"d1NodeProcessingState": ("Active",), "owner": ("cn=x",)}
    known[()]["description"] += ("a note of theirs",)
    assert member_of(known)[0] == RIVER
    wanted = entries_of(river_with(services=RIVER.services[:1], name="New"), approved=True, known=known)
    changed, added, vanished = changes(known, wanted)
    assert not added
    assert (strange,) not in vanished
    assert changed[()].keys() == {"d1NodeName"}
    assert set(vanished) == {path for path in known if path and path[0][0][0] == "d1NodeServiceId"} - {(strange,)}


def test_an_outside_change_voids_the_note_about_the_order_and_nothing_else() -> None:
    member = river_with(subjects=("b", "a"), contact_subjects=("d", "c"))
    entries = entries_of(member, approved=True)
    assert entries[()]["description"][0].startswith(NOTE)
    entries[()] |= {"subject": ("b", "a", "0")}
    found, _ = member_of(entries)
    assert found.subjects == ("0", "a", "b")
    assert found.contact_subjects == ("d", "c")


@pytest.mark.parametrize(
    "note", ["", "[]", "{", '{"subjects": 1}', '{"nonsense": ["0", 1]}', '{"subjects": ["0", []]}']
)
def test_a_note_that_cannot_be_read_counts_as_none(note: str) -> None:
    entries = entries_of(RIVER.model_copy(update={"properties": ()}), approved=True)
    entries[()] |= {"description": (NOTE + note,)}
    assert member_of(entries)[0] == RIVER.model_copy(update={"properties": ()})


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("d1NodeName", None, "d1NodeName is missing"),
        ("d1NodeApproved", None, "d1NodeApproved is missing"),
        ("d1NodeState", "asleep", "d1NodeState is bad"),
        ("d1NodeLastHarvested", "yesterday", "d1NodeLastHarvested is bad"),
        ("d1NodeSynSchdYear", None, "d1NodeSynSchdYear is missing"),
        ("d1NodeBaseURL", "ftp://x", "d1NodeBaseURL is bad"),
        ("d1ReplicationPolicyMaxObjectSize", "much", "d1ReplicationPolicyMaxObjectSize is bad"),
    ],
)
def test_a_bad_entry_is_told_by_its_attribute(attribute: str, value: str | None, said: str) -> None:
    entries = entries_of(RIVER, approved=True)
    entries[()] = {name: given for name, given in entries[()].items() if name != attribute}
    if value is not None:
        entries[()][attribute] = (value,)
    with pytest.raises(BadEntry, match=said):
        member_of(entries)


def test_a_bad_service_is_told_with_its_place() -> None:
    entries = entries_of(RIVER, approved=True)
    path = (rdn("d1NodeServiceId", "MNRead-v1"),)
    del entries[path]["d1NodeServiceVersion"]
    with pytest.raises(BadEntry, match="d1NodeServiceVersion is missing") as caught:
        member_of(entries)
    assert caught.value.path == path


def test_hard_names_and_long_ones_have_entries_of_their_own() -> None:
    long = "n" * 1000
    member = river_with(
        services=(Service(name=HARD, version="v2"), Service(name=HARD, version="v2"), Service(name=long, version="v1")),
        properties=(Property(key=long, value="1"), Property(key=long, value="2")),
    )
    entries = entries_of(member, approved=True)
    assert len(entries) == 6
    assert max(len(path[0][0][1]) for path in entries if path) < 200
    assert member_of(entries)[0] == member


def test_without_python_ldap_the_mapping_works_and_the_client_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['ldap'] = None; import tasks.nodelist.ldap.entries, tasks.nodelist.ldap.errors; "
        "import tasks.nodelist.ldap.directory"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError")
    for said in ("pip install 'celery-coordinator[ldap]'", "libldap2-dev", "libsasl2-dev", "gcc", "python3-dev"):
        assert said in last
