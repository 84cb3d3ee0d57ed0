"""The whole nodelist read from a real slapd: what is bad is left out, what moves is read again."""

import multiprocessing
import re
from collections.abc import Callable
from typing import Any

import ldap
import pytest

from tasks.nodelist.ldap.directory import Directory, LdapRefused
from tasks.nodelist.stores import State
from tests.harness.slapd import SlapdServer, dn, ldif_of
from tests.harness.waiting import wait_until
from tests.tasks.conftest import RIVER, river_with

ID = RIVER.identifier


def meanwhile(
    client: Directory, monkeypatch: pytest.MonkeyPatch, slapd: SlapdServer, change: Callable[[Directory], object]
) -> None:
    """Somebody else changes something between the second entry of the client's next search and the third."""
    real, seen = client._connection.search, []

    def search(*given: Any) -> Any:
        for found in real(*given):
            yield found
            seen.append(found[0])
            if len(seen) == 2:
                with Directory(slapd.settings()) as writer:
                    change(writer)

    monkeypatch.setattr(client._connection, "search", search)


def test_bad_entries_are_named_and_left_out(slapd: SlapdServer, directory: Directory) -> None:
    slapd.stop()
    names = ["good", "half", "yesterday", "elsewhere", "nameless", "asleep"]
    sound = [river_with(identifier=f"urn:node:{name}") for name in names[:4]]
    nameless, asleep = (river_with(identifier=f"urn:node:{name}", services=(), properties=()) for name in names[4:])
    without = "".join(line for line in ldif_of([nameless]).splitlines(True) if not line.startswith("d1NodeName:"))
    slapd.load(ldif_of(sound))
    slapd.load(without, ldif_of([asleep]).replace("d1NodeState: up", "d1NodeState: asleep"), checked=False)
    slapd.start()
    slapd.replace(dn("urn:node:yesterday"), d1NodeLastHarvested="yesterday")
    slapd.replace(dn("urn:node:elsewhere"), d1NodeId="urn:node:other")
    operator = slapd.operator()
    operator.modify_s(dn("urn:node:half"), [(ldap.MOD_DELETE, "d1NodeSynSchdYear", None)])
    operator.unbind_s()
    reading = directory.read()
    assert reading.states.keys() == {"urn:node:good"}
    assert reading.problems.keys() == {
        *(f"urn:node:{name}" for name in names if name not in ("good", "elsewhere")),
        dn("urn:node:elsewhere"),
    }
    said = "\n".join(reading.problems.values())
    assert f"{dn('urn:node:nameless')}: d1NodeName" in said
    for part in ("d1NodeName is missing", "d1NodeState is bad", "d1NodeLastHarvested is bad"):
        assert part in said
    assert "d1NodeSynSchdYear is missing" in said
    with pytest.raises(LdapRefused, match="d1NodeName is missing"):
        directory.read_one("urn:node:nameless")


def test_a_base_that_is_not_there_is_refused(slapd: SlapdServer) -> None:
    with (
        Directory(slapd.settings(ldap_base="dc=nothing,dc=org")) as lost,
        pytest.raises(LdapRefused, match="does not exist"),
    ):
        lost.read()


def test_a_member_that_changes_between_two_pages_is_read_again(
    slapd: SlapdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own entry is on the first page, a property on a later one: both change between, and one reading has both."""
    with Directory(slapd.settings(ldap_page=2)) as client:
        other = river_with(identifier="urn:node:other")
        record = client.write(ID, None, RIVER, True)
        client.write(other.identifier, None, other, True)
        last = RIVER.properties[-1]
        changed = river_with(name="New", properties=(*RIVER.properties[:-1], last.model_copy(update={"value": "New"})))
        meanwhile(client, monkeypatch, slapd, lambda writer: writer.write(ID, record, changed, True))
        start = slapd.mark()
        reading = client.read()
    assert {member_id: found.listed.member for member_id, found in reading.states.items()} == {
        ID: changed,
        "urn:node:other": other,
    }
    read_again = [operation for operation in slapd.operations(start) if operation.startswith(f'SRCH base="{dn(ID)}"')]
    assert read_again
    assert not any("urn:node:other" in operation for operation in slapd.operations(start))


def test_a_member_that_is_removed_while_it_is_read_is_gone(slapd: SlapdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with Directory(slapd.settings(ldap_page=2)) as client:
        record = client.write(ID, None, RIVER, True)
        meanwhile(client, monkeypatch, slapd, lambda writer: writer.remove(ID, record))
        reading = client.read()
    assert reading.states == {}
    assert reading.problems == {}


def _read_in_child(client: Directory, answers: Any) -> None:
    answers.put(sorted(client.read().states))


def test_a_forked_process_leaves_its_parents_connection_alone(
    slapd: SlapdServer, directory: Directory, river: State
) -> None:
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    child = fork.Process(target=_read_in_child, args=(directory, answers))
    child.start()
    assert answers.get() == [ID]
    wait_until(lambda: child.exitcode == 0)
    record = directory.write(ID, river, river_with(state="down"), True)
    assert directory.read_one(ID) == record
    binds = re.findall(r'BIND dn="cn=coordinator,\S+" method', slapd.log.read_text())
    assert len(binds) == 2  # the child's and, once, the parent's
