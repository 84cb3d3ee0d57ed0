"""Nodes, Redis and LDAP keep one nodelist: whatever is at odds is named."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.demo.member_server import MemberServer
from tasks.documents.document import Document
from tasks.documents.on_disk import Copies
from tasks.nodelist.entries import MEMBER
from tasks.nodelist.ldap.directory import Directory
from tests.fleet.tasks.service import Service, beat, fill_disk, maintenance_of
from tests.harness.command import IMPORT, Done, refused, told
from tests.harness.redis import RedisServer
from tests.harness.slapd import SlapdServer, dn
from tests.harness.waiting import wait_until
from tests.tasks.conftest import river_with

A = "urn:node:mnA"


@pytest.fixture
def service(
    own_redis: RedisServer, slapd: SlapdServer, member: MemberServer, tmp_path: Path
) -> Iterator[tuple[Service, SlapdServer]]:
    """Its permanent store has one member; nothing refreshes by itself."""
    settings = slapd.environ | {"TASKS_LDAP_TIMEOUT": "1", "TASKS_REFRESH_INTERVAL": "3600"}
    folder = tmp_path / "service"
    folder.mkdir()
    with Service(own_redis, folder, [member], **settings) as started:
        told(started.call(*IMPORT, str(started.settings.nodelist)))
        yield started, slapd


def copies(service: Service, member: str) -> Path:
    return service.folder / "replicas" / "coord" / member / "nodelist"


def agreed(service: Service) -> dict[str, int]:
    """By member, the version that it has."""
    found = json.loads(told(service.call("nodelist", "verify", "--json")))
    assert found["agreed"]
    return dict(found["copies"])


def test_each_of_those_that_keep_it_is_compared(service: tuple[Service, SlapdServer]) -> None:
    here, slapd = service
    here.node("one")
    other = here.node("two")
    document = Document(here.coordinator.store, "nodelist")
    wait_until(lambda: document.members() == ["one@test", "two@test"])
    version = document.pointer()[0]
    assert agreed(here) == {"one@test": version, "two@test": version}

    for damaged in (*copies(here, "one@test").glob("*.log"), *copies(here, "one@test").glob("*.snapshot")):
        damaged.write_bytes(damaged.read_bytes().replace(b"up", b"UP"))
    assert differs(here.call("nodelist", "verify")) == f"one@test has a damaged copy of version {version}"
    agreed(here)

    slapd.replace(dn(A), d1NodeName="Renamed")
    name = document.fetch().value(MEMBER + A)["member"]["name"]
    line = differs(here.call("nodelist", "verify"))
    assert line == f"{A}: name: {slapd.url} has Renamed, and {name} is committed"
    assert told(here.call("nodelist", "refresh")) == f"{A}: name: {name} → Renamed"

    key = here.coordinator.store.key("document", "nodelist")
    committed = here.coordinator.store._client.hget(key, f"member/{A}")
    here.coordinator.store._client.hset(key, f"member/{A}", committed.replace(b"Renamed", b"Forged"))
    now = document.pointer()[0]
    line = differs(here.call("nodelist", "verify"))
    assert line == f"Redis: its version {now} is not the one that was committed"
    here.coordinator.store._client.delete(key, here.coordinator.store.key("pointer", "nodelist"))
    wait_until(lambda: document.pointer()[0] > version)
    assert here.coordinator.store._client.hget(key, f"member/{A}") == committed
    told(here.call("nodelist", "refresh"))
    agreed(here)

    for process in [*other.children(recursive=True), other]:
        process.kill()
    assert differs(here.call("nodelist", "verify")) == "two@test does not answer: it is dead, or it hangs"


def differs(done: Done) -> str:
    """The one difference that `verify` tells."""
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    return str(line)


def changed(service: Service, slapd: SlapdServer, state: str) -> int:
    """A commit; its version."""
    document = Document(service.coordinator.store, "nodelist")
    slapd.replace(dn(A), d1NodeState=state)
    told(service.call("nodelist", "refresh"))  # unless a beat's tick was first
    wait_until(lambda: document.fetch().entries(MEMBER)[MEMBER + A]["member"]["state"] == state)
    return int(document.pointer()[0])


def test_who_is_out_of_the_replica_set_and_a_beat_that_has_another_copy_are_named(
    service: tuple[Service, SlapdServer],
) -> None:
    here, slapd = service
    here.node("one")
    maintenance = maintenance_of(here.node("two"))
    document, of_beat = Document(here.coordinator.store, "nodelist"), f"beat@{socket.gethostname()}"
    with beat(here, "beat"):
        wait_until(lambda: document.members() == [of_beat, "one@test", "two@test"])
        fill_disk(maintenance)
        version = changed(here, slapd, "down")
        found = here.call("nodelist", "verify")
        assert "two@test is out of the replica set: it cannot write its disk" in differs(found)
        shown = dict(line.split(maxsplit=1) for line in found.stdout.splitlines()[1:])
        assert (shown[of_beat], shown["one@test"], shown["two@test"][:4]) == ("same", "same", "out:")
        fill_disk(maintenance, full=False)
        wait_until(lambda: len(document.members()) == 3)
        found = agreed(here)
        assert set(found) == {of_beat, "one@test", "two@test"}
        assert len(set(found.values())) == 1
        assert min(found.values()) >= version, "a refresh may have written one since"
        version = max(found.values())

        state = dict(document.fetch().state)
        state[MEMBER + A] = state[MEMBER + A].replace('"down"', '"up"')
        forged = Copies(copies(here, of_beat).parent, "nodelist")
        forged.replace(version, state)
        line = differs(here.call("nodelist", "verify"))
        assert line == f"{of_beat} has a damaged copy of version {version}"
        version = changed(here, slapd, "unknown")
        assert set(agreed(here).values()) == {version}


def test_what_the_directory_lacks_is_told_by_the_sync_and_by_those_who_look_and_written_once_it_is_back(
    service: tuple[Service, SlapdServer],
) -> None:
    here, slapd = service
    here.node("one")
    slapd.kill()
    done = here.call("refresh", A, "--why", "a test", "--wait")
    assert "5 stored" in told(done)
    assert f"lacks the new dates yet: LDAP at {slapd.url}: Can't contact" in done.stderr.splitlines()[-1]
    assert f"LDAP at {slapd.url}: Can't contact" in refused(here.call("nodelist", "refresh"))
    lines = here.call("nodelist", "verify").stderr.splitlines()
    assert f"{A}: {slapd.url} lacks version " in lines[0]
    assert "the permanent store cannot be compared: LDAP at " in lines[1]
    slapd.start()
    assert "nobody else has changed" in told(here.call("nodelist", "refresh"))
    assert list(agreed(here)) == ["one@test"]
    assert slapd.entry(dn(A), "d1NodeLastHarvested")


def test_a_broken_entry_that_is_known_ends_no_comparison_with_an_error(service: tuple[Service, SlapdServer]) -> None:
    here, slapd = service
    here.node("one")
    wait_until(lambda: Document(here.coordinator.store, "nodelist").members() == ["one@test"])
    known = here.folder / "known"
    known.write_text(f"# a line each\n{A}  # since May\nurn:node:mnGone\n")
    slapd.replace(dn(A), d1NodeState="asleep")
    sentence = f"{A}: its entry in {slapd.url} cannot be understood"
    done = here.call("nodelist", "verify")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, sentence)
    assert "5 stored" in told(
        here.call("refresh", A, "--why", "a test", "--wait")
    )  # from now on it lacks a version, too
    done = here.call("nodelist", "verify", "--known", str(known))
    assert "is the same on one@test" in told(done)
    said = done.stderr.splitlines()
    assert f"known: {sentence}" in said
    assert said[-1] == "urn:node:mnGone is not broken any more: take it out of the file"

    with Directory(slapd.settings()) as directory:
        directory.write("urn:node:mnB", None, river_with(identifier="urn:node:mnB"), True)
    done = here.call("nodelist", "verify", "--known", str(known), "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["agreed"]) == (1, False)
    assert found["differences"] == [f"urn:node:mnB is only in {slapd.url}"]
    assert sentence in found["known"]
    slapd.replace(dn(A), d1NodeState="up")
    told(here.call("nodelist", "refresh"))
    done = here.call("nodelist", "verify", "--known", str(known))
    assert told(done)
    assert f"{A} is not broken any more: take it out of the file" in done.stderr.splitlines()
