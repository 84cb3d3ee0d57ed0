"""deploy/ldap as it is: schema, access rules, limits, samples, and a read-only copy."""

import time
from pathlib import Path

import ldap
import pytest
from ldap.schema import SubSchema
from ldap.schema.models import AttributeType, ObjectClass

from tasks.nodelist.ldap.directory import Directory, LdapRefused, LdapUnreachable
from tasks.nodelist.ldap.schema import CHANGEABLE, CLASSES
from tasks.nodelist.stores import State
from tests.harness.long import long
from tests.harness.slapd import BASE, DEPLOY, SlapdServer, ldif_of
from tests.harness.waiting import wait_until
from tests.tasks.conftest import RIVER, SAMPLE, river_with

ID = RIVER.identifier
MANY = 2_000


def bound(slapd: SlapdServer, name: str) -> ldap.ldapobject.LDAPObject:
    connection = ldap.initialize(slapd.url)
    if name:
        connection.simple_bind_s(f"cn={name},{BASE}", name)
    return connection


def test_the_schema_has_dataones_names_and_numbers(slapd: SlapdServer) -> None:
    connection = slapd.operator()
    read = connection.read_subschemasubentry_s(connection.search_subschemasubentry_s())
    connection.unbind_s()
    schema = SubSchema(read, check_uniqueness=2)
    numbers = {"d1NodeId": "3.1", "d1NodeSynSchdYear": "3.17", "d1NodePropertyType": "3.39", "created": "2.1.8"}
    for name, number in numbers.items():
        arc = number if number.startswith("2.1") else f"2.{number}"
        assert schema.get_obj(AttributeType, name).oid == f"1.3.6.1.4.1.37951.{arc}"
    for number, name in enumerate(CLASSES, start=1):
        found = schema.get_obj(ObjectClass, name)
        assert found.oid == f"1.3.6.1.4.1.37951.2.4.{number}"
        held = {*found.must, *found.may, *(schema.get_obj(ObjectClass, "device").may if number == 1 else ())}
        assert CHANGEABLE[name] <= held
    assert schema.get_obj(AttributeType, "d1NodeLastHarvested").ordering is None
    assert schema.get_obj(AttributeType, "d1NodeContactSubject").single_value is False


def test_nobody_reads_a_password_and_a_stranger_reads_nothing(slapd: SlapdServer, river: State) -> None:
    for name in ("coordinator", "reader"):
        connection = bound(slapd, name)
        found = dict(connection.search_s(BASE, ldap.SCOPE_SUBTREE, "(objectClass=*)"))
        assert f"cn=admin,{BASE}" in found
        assert not any("userPassword" in entry for entry in found.values())
        connection.unbind_s()
    stranger = bound(slapd, "")
    with pytest.raises(ldap.NO_SUCH_OBJECT):
        stranger.search_s(BASE, ldap.SCOPE_SUBTREE, "(objectClass=*)")
    stranger.unbind_s()


def test_the_coordinators_write_nodes_and_nothing_else(slapd: SlapdServer, river: State) -> None:
    coordinator = bound(slapd, "coordinator")
    for name in ("admin", "reader"):
        with pytest.raises(ldap.INSUFFICIENT_ACCESS):
            coordinator.modify_s(f"cn={name},{BASE}", [(ldap.MOD_REPLACE, "userPassword", [b"x"])])
        with pytest.raises(ldap.INSUFFICIENT_ACCESS):
            coordinator.delete_s(f"cn={name},{BASE}")
    with pytest.raises(ldap.INSUFFICIENT_ACCESS):
        coordinator.add_s(f"cn=me,{BASE}", [("objectClass", [b"device"]), ("cn", [b"me"])])
    with pytest.raises(ldap.INSUFFICIENT_ACCESS):
        coordinator.modify_s(BASE, [(ldap.MOD_REPLACE, "o", [b"x"])])
    coordinator.passwd_s(f"cn=coordinator,{BASE}", "coordinator", "another")
    coordinator.unbind_s()
    with Directory(slapd.settings(ldap_password="another")) as client:
        assert client.read().states == {ID: river}


def test_the_sample_members_are_those_of_the_sample_nodelist(tmp_path: Path) -> None:
    slapd = SlapdServer(tmp_path / "slapd")
    slapd.load((DEPLOY / "base.ldif").read_text(), (DEPLOY / "members.ldif").read_text())
    try:
        slapd.start()
        with Directory(slapd.settings()) as client:
            records = client.read().states
        assert {member_id: record.listed.member for member_id, record in records.items()} == {
            m.identifier: m for m in SAMPLE
        }
        assert all(record.listed.approved for record in records.values())
    finally:
        slapd.kill()


@pytest.mark.timeout(long(300, 600))
def test_many_members_are_read_in_pages_in_bounded_time(tmp_path: Path) -> None:
    number, seconds = long((MANY, 40), (5 * MANY, 60))
    slapd = SlapdServer(tmp_path / "slapd")
    slapd.load((DEPLOY / "base.ldif").read_text())
    plain = {"services": RIVER.services[:2], "properties": RIVER.properties[:1]}
    slapd.load(ldif_of(river_with(identifier=f"urn:node:M{one}", **plain) for one in range(number)))
    try:
        slapd.start()
        with Directory(slapd.settings()) as client:
            start, begun = slapd.mark(), time.monotonic()
            reading = client.read()
            took = time.monotonic() - begun
            assert len(reading.states) == number
            assert not reading.problems
            assert took < seconds
            pages = slapd.operations(start)
            assert len(pages) == 2 * -(-4 * number // 500)
            assert all(f'base="{BASE}" scope=2' in page for page in pages)
    finally:
        slapd.kill()


def test_a_read_only_copy_follows_and_refuses_writes_by_naming_the_writable_one(
    slapd: SlapdServer, directory: Directory, river: State, tmp_path: Path
) -> None:
    replaced = {"ldap://ldap.example.org": slapd.url, "starttls=critical": "starttls=no"}
    copy = SlapdServer(tmp_path / "copy", configuration="consumer.conf", replaced=replaced)
    try:
        copy.start()
        with Directory(copy.settings()) as client:
            wait_until(lambda: readable(client) == {ID: river})
            written = directory.write(ID, river, river_with(state="down"), True)
            wait_until(lambda: readable(client) == {ID: written})
            with pytest.raises(LdapRefused, match="is a read-only copy; set ldap_url to the one writable server"):
                client.write(ID, written, RIVER, True)
    finally:
        copy.kill()


def readable(client: Directory) -> dict[str, State] | None:
    """None as long as the copy is empty still and knows nobody's password."""
    try:
        return client.read().states
    except (LdapRefused, LdapUnreachable):
        return None


def test_a_member_named_like_an_account_is_refused_its_place(directory: Directory) -> None:
    with pytest.raises(LdapRefused, match="an entry of another kind has its place"):
        directory.write("admin", None, river_with(identifier="admin"), True)
