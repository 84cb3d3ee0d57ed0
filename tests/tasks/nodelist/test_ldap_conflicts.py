"""Nothing that somebody else wrote is overwritten, and a crash leaves a member."""

import pytest

from tasks.member_node.member import Property, Restriction, Service
from tasks.nodelist.ldap.connection import Connection
from tasks.nodelist.ldap.directory import Directory, LdapConflict, LdapRefused
from tasks.nodelist.stores import State
from tests.harness.slapd import BASE, SlapdServer, dn
from tests.tasks.conftest import LATER, RIVER, in_threads, river_with
from tests.tasks.nodelist.lists import Crash

ID = RIVER.identifier


def read(client: Directory) -> State:
    record = client.read_one(ID)
    assert record
    return record


def test_after_a_crash_between_any_two_operations_the_member_is_read_and_the_write_goes_on(
    directory: Directory,
) -> None:
    services = (Service(name="A", version="v2", restrictions=(Restriction(method="m", subjects=("x",)),)),)
    wanted = river_with(state="down", services=services, properties=())
    crashes, there = 0, None
    while True:
        base = directory.write(ID, there, RIVER, True)
        with pytest.MonkeyPatch.context() as patch:
            Crash(patch, crashes, [(Connection, name) for name in ("add", "modify", "delete")])
            try:
                directory.write(ID, base, wanted, True)
                break
            except InterruptedError:
                crashes += 1
        half = read(directory)
        there = directory.write(ID, half, wanted, True)
        assert directory.read_one(ID) == there
    assert crashes == 12


def test_an_outside_change_is_not_overwritten(slapd: SlapdServer, directory: Directory, river: State) -> None:
    slapd.replace(dn(ID), d1NodeDescription="by hand", d1NodeState="down")
    with pytest.raises(LdapConflict, match="was changed since it was read"):
        directory.write(ID, river, river_with(state="unknown", last_harvested=LATER), True)
    with pytest.raises(LdapConflict):
        directory.remove(ID, river)
    now = read(directory)
    assert now.listed.member == river_with(description="by hand", state="down")
    merged = now.listed.member.model_copy(update={"last_harvested": LATER})
    assert directory.write(ID, now, merged, True).listed.member == merged


def test_outside_changes_of_entries_below_are_not_overwritten_either(
    slapd: SlapdServer, directory: Directory, river: State
) -> None:
    core = dn(ID, ("d1NodeServiceId", "MNCore-v1"))
    slapd.replace(core, d1NodeServiceAvailable="FALSE")
    with pytest.raises(LdapConflict):
        directory.write(ID, river, river_with(services=RIVER.services[1:]), True)
    assert slapd.entry(core)["d1NodeServiceAvailable"] == [b"FALSE"]
    now = read(directory)
    operator = slapd.operator()
    operator.delete_s(dn(ID, ("d1NodePropertyId", "CN_node_name")))
    operator.unbind_s()
    with pytest.raises(LdapConflict, match="is gone"):
        directory.write(ID, now, now.listed.member.model_copy(update={"properties": RIVER.properties[1:]}), True)


def test_of_a_late_writer_nothing_arrives_whichever_entries_it_and_its_successor_changed(
    slapd: SlapdServer, directory: Directory, river: State
) -> None:
    off = (RIVER.services[0].model_copy(update={"available": False}), *RIVER.services[1:])
    record = directory.write(ID, river, river_with(services=off), True)
    late = [
        river_with(last_harvested=LATER),
        river_with(properties=(*RIVER.properties, Property(key="late"))),
        river_with(services=RIVER.services[:-1]),
        river_with(services=(*RIVER.services[:-1], RIVER.services[-1].model_copy(update={"available": False}))),
    ]
    for wanted in late:
        with pytest.raises(LdapConflict):
            directory.write(ID, river, wanted, True)
    assert directory.read_one(ID) == record


def test_of_writers_that_race_each_change_is_kept(slapd: SlapdServer, directory: Directory, river: State) -> None:
    """Each adds what it has to the description, as a merge would; a conflict is read again, and so is a member that
    changed at each look.
    """

    def add(letter: str) -> None:
        with Directory(slapd.settings()) as client:
            for _ in range(10):
                while True:
                    try:
                        base = read(client)
                        text = base.listed.member.description + letter
                        client.write(ID, base, base.listed.member.model_copy(update={"description": text}), True)
                        break
                    except LdapConflict:
                        continue
                    except LdapRefused as error:
                        if "it kept changing" not in str(error):
                            raise

    in_threads(add, "XYZ")
    found = read(directory)
    assert sorted(found.listed.member.description.removeprefix(RIVER.description)) == sorted("XYZ" * 10)


def test_what_we_do_not_know_is_kept(slapd: SlapdServer, directory: Directory, river: State) -> None:
    values = {"d1NodeProcessingState": "Active", "d1NodeAggregateLogs": "true", "owner": f"cn=admin,{BASE}", "l": "Ühl"}
    slapd.replace(dn(ID), **values)
    record = read(directory)
    written = directory.write(ID, record, river_with(state="down"), True)
    entry = slapd.entry(dn(ID))
    assert {name: entry[name] for name in values} == {name: [value.encode()] for name, value in values.items()}
    assert directory.read_one(ID) == written


def test_a_member_that_is_there_already_is_a_conflict_and_one_that_differs_in_case_is_refused(
    directory: Directory, river: State
) -> None:
    with pytest.raises(LdapConflict, match="exists already"):
        directory.write(ID, None, RIVER, True)
    with pytest.raises(LdapRefused, match="may not differ in case alone"):
        directory.read_one(ID.upper())
