"""Members written to a real slapd, and read again."""

import pytest

from tasks.member_node.member import Property, ReplicationPolicy, Restriction, Service
from tasks.nodelist.ldap.directory import Directory, LdapRefused
from tasks.nodelist.ldap.schema import APPROVED
from tasks.nodelist.stores import State
from tests.harness.slapd import BASE, SlapdServer, dn
from tests.tasks.conftest import LATER, RIVER, SAMPLE, river_with

ID = RIVER.identifier
HARD = ',+"\\<>;= #ÄÖÜäöüß*()/'


def test_what_is_written_is_read_the_same(directory: Directory) -> None:
    written = {member.identifier: directory.write(member.identifier, None, member, True) for member in SAMPLE}
    reading = directory.read()
    assert reading.states == written
    assert reading.problems == {}
    assert {member_id: record.listed.member for member_id, record in written.items()} == {
        m.identifier: m for m in SAMPLE
    }
    assert directory.read_one(ID) == written[ID]
    assert directory.read_one("urn:node:nobody") is None


def test_what_the_schema_has_no_place_for_comes_back_from_the_server(directory: Directory) -> None:
    member = river_with(
        subjects=("b", "a", "A", "b"),
        contact_subjects=(),
        replication_policy=ReplicationPolicy(),
        properties=(Property(key="k", type="", value=""), Property(key="k", value=" "), Property(key="a" * 3000)),
        services=(
            Service(name="B", version="v2", restrictions=(Restriction(method="m"), Restriction(method="m"))),
            Service(name="A", version="v2", available=False),
            Service(name="A", version="v2"),
        ),
    )
    record = directory.write(ID, None, member, approved=False)
    assert directory.read_one(ID) == record
    assert record.listed.member == member
    assert not record.listed.approved


@pytest.mark.parametrize("member_id", ['urn:node:,+"\\<>;=', "#urn:nöde:Ü*()", "ﬁß"])
def test_names_and_ids_of_any_letters(directory: Directory, member_id: str) -> None:
    service = Service(name=HARD, version="v2", restrictions=(Restriction(method=HARD, subjects=(HARD, "CN=Ü,O=\\")),))
    member = river_with(
        identifier=member_id, name=HARD, services=(service,), properties=(Property(key=HARD, value=HARD),)
    )
    record = directory.write(member_id, None, member, True)
    assert directory.read().states == {member_id: record}
    assert directory.read_one(member_id) == record
    changed = member.model_copy(update={"name": "plain", "services": (), "properties": ()})
    record = directory.write(member_id, record, changed, True)
    assert directory.read().states == {member_id: record}
    directory.remove(member_id, record)
    assert directory.read().states == {}


def test_only_the_attributes_that_changed_are_written_in_one_operation_and_no_search(
    slapd: SlapdServer, directory: Directory, river: State
) -> None:
    start = slapd.mark()
    record = directory.write(ID, river, river_with(last_harvested=LATER), True)
    assert slapd.operations(start) == ["MOD attr=d1NodeLastHarvested"]
    directory.write(ID, record, river_with(last_harvested=LATER, state="down", schedule=None), False)
    (_, operation) = slapd.operations(start)
    schedule = ["Hour", "Mday", "Min", "Mon", "Sec", "Wday", "Year"]
    assert sorted(operation.split("=", 1)[1].split()) == sorted(
        [APPROVED, "d1NodeState", *(f"d1NodeSynSchd{name}" for name in schedule)]
    )


def test_nothing_changed_is_no_operation_at_all(slapd: SlapdServer, directory: Directory, river: State) -> None:
    start = slapd.mark()
    assert directory.write(ID, river, RIVER, True) is river
    assert slapd.operations(start) == []


def test_entries_come_and_go_with_services_restrictions_and_properties(
    slapd: SlapdServer, directory: Directory, river: State
) -> None:
    start = slapd.mark()
    services = (
        *RIVER.services[:4],
        Service(name="MNStorage", version="v2", restrictions=(Restriction(method="create"),)),
    )
    changed = river_with(services=services, properties=RIVER.properties[:1])
    record = directory.write(ID, river, changed, True)
    operations = [operation.partition("=")[0] for operation in slapd.operations(start)]
    assert operations == ["MOD attr", "ADD dn", "ADD dn", "DEL dn", "DEL dn", "DEL dn", "DEL dn"]
    assert directory.read_one(ID) == record
    assert record.listed.member == changed


def test_what_the_schema_forbids_is_refused_by_entry_and_attribute(directory: Directory, river: State) -> None:
    """Whatever a `Member` holds is fit for the schema, so this one goes past the mapping."""
    with pytest.raises(LdapRefused, match=r"d1NodeReplicate.*Invalid syntax") as caught:
        directory._connection.modify(dn(ID), {"d1NodeReplicate": ("maybe",)}, (river.token or {})[dn(ID)][0])
    assert caught.value.dn == dn(ID)
    assert caught.value.attributes == ("d1NodeReplicate",)


def test_who_may_only_read_is_refused_a_write(slapd: SlapdServer, river: State) -> None:
    with Directory(slapd.settings(ldap_bind_dn=f"cn=reader,{BASE}", ldap_password="reader")) as reader:
        assert reader.read().states == {ID: river}
        with pytest.raises(LdapRefused, match=r"d1NodeState.*Insufficient access"):
            reader.write(ID, river, river_with(state="down"), True)


def test_names_that_are_too_long_for_an_entry_are_shortened_and_an_id_is_refused(directory: Directory) -> None:
    long = [letter * length for letter in ("a", ",", "ü", "\ufdfa") for length in (60, 150, 2000)]
    services = tuple(Service(name=name, version="v2", restrictions=(Restriction(method=name),)) for name in long)
    member = river_with(services=services, properties=tuple(Property(key=name) for name in (*long, *long)))
    record = directory.write(ID, None, member, True)
    assert record.listed.member == member
    assert directory.read_one(ID) == record
    for member_id in ("x" * 256, "," * 100):
        with pytest.raises(LdapRefused, match="longer than the name of an entry may be"):
            directory.write(member_id, None, river_with(identifier=member_id), True)
    for member_id in ("x" * 240, "ü" * 120, "," * 80):
        directory.write(member_id, None, river_with(identifier=member_id), True)
