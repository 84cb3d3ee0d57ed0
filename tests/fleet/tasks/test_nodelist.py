"""What others change in LDAP reaches each node and each beat of a real fleet within seconds of the refresh."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from examples.demo.member_server import MemberServer
from tasks.documents.document import Document
from tasks.documents.on_disk import Copies
from tasks.member_node.member import MemberSchedule
from tasks.nodelist.ldap.directory import Directory
from tasks.nodelist.ldap.schema import TIMES
from tests.fleet.tasks.service import Service, beat
from tests.harness.redis import RedisServer
from tests.harness.slapd import SlapdServer, dn
from tests.harness.stopping import stop
from tests.harness.waiting import wait_until
from tests.tasks.conftest import river_with

A, B, C = "urn:node:mnA", "urn:node:mnB", "urn:node:mnC"
PLAIN = river_with(base_url="http://127.0.0.1:9")
EVEN = MemberSchedule(sec="0/2", min="*", hour="*", mday="*", mon="*", wday="?", year="*")
ODD = MemberSchedule(sec="1/2", min="0-59", hour="0-23", mday="?", mon="1-12", wday="*", year="2000-2099")


@pytest.fixture
def directory(slapd: SlapdServer) -> Iterator[Directory]:
    """Has A, which is synchronized at even seconds, and B."""
    with Directory(slapd.settings()) as client:
        client.write(A, None, PLAIN.model_copy(update={"identifier": A, "schedule": EVEN}), True)
        client.write(B, None, PLAIN.model_copy(update={"identifier": B}), True)
        yield client


@pytest.fixture
def fleet(slapd: SlapdServer, directory: Directory, own_redis: RedisServer, tmp_path: Path) -> Iterator[Service]:
    with Service(own_redis, tmp_path, list[MemberServer](), **slapd.environ, TASKS_REFRESH_INTERVAL="3600") as service:
        service.node("one", 1)
        service.node("two", 1)
        yield service


def rewrite(directory: Directory, member_id: str, approved: bool = True, **fields: str) -> None:
    record = directory.read_one(member_id)
    assert record
    directory.write(member_id, record, record.listed.member.model_copy(update=fields), approved)


def refreshed(service: Service) -> None:
    service.ended(service.shell("from tasks.nodelist_refresh import refresh; print(refresh())"))


def scheduled(service: Service) -> set[str]:
    store = service.coordinator.store
    with service.redis.client() as client:
        ticks = [name.partition(":tick:")[2] for name in client.scan_iter(store.key("tick", "sync/*"))]
    return {name.removeprefix("sync/") for name in ticks}


def ticks(service: Service, *beats: str) -> list[datetime]:
    """The instants at which these beats let A be synchronized."""
    said = "".join(service.log(name) for name in beats)
    return sorted(datetime.fromisoformat(found) for found in re.findall(rf"tick sync/{A}@(\S+): ", said))


def odd(instants: list[datetime]) -> list[datetime]:
    return [one for one in instants if one.second % 2]


def ticks_odd_from_now_on(service: Service, beats: dict[str, psutil.Process]) -> None:
    """Within 5 s, and none at an even second after that; each of the beats alone knows it."""
    wait_until(lambda: odd(ticks(service, *beats)), what=lambda: str(ticks(service, *beats)))
    first = odd(ticks(service, *beats))[0]
    for name in beats:
        others = [process for other, process in beats.items() if other != name]
        stop(*others)
        known = len(odd(ticks(service, name)))
        wait_until(lambda name=name, known=known: len(odd(ticks(service, name))) >= known + 2, what=name)
        for process in others:
            process.resume()
    assert [one for one in ticks(service, *beats) if one > first] == odd(ticks(service, *beats))[1:]


def test_what_a_refresh_takes_in_reaches_every_node_and_beat_within_five_seconds(
    slapd: SlapdServer, directory: Directory, fleet: Service
) -> None:
    with beat(fleet, "first") as first, beat(fleet, "second") as second:
        document, beats = Document(fleet.coordinator.store, "nodelist"), {"first": first, "second": second}
        wait_until(lambda: len(document.members()) == 4, what=lambda: str(document.members()))
        wait_until(lambda: scheduled(fleet) == {A, B}, what=lambda: str(scheduled(fleet)))
        wait_until(lambda: ticks(fleet, *beats))
        assert not odd(ticks(fleet, *beats))

        slapd.replace(dn(A), **{TIMES[name]: value for name, value in ODD.model_dump().items()})
        refreshed(fleet)
        ticks_odd_from_now_on(fleet, beats)
        assert f"{A}: schedule: {EVEN.model_dump()} → {ODD.model_dump()}" in fleet.log("one") + fleet.log("two")

        directory.write(C, None, PLAIN.model_copy(update={"identifier": C}), True)
        rewrite(directory, B, state="down")
        refreshed(fleet)
        wait_until(lambda: scheduled(fleet) == {A, C}, what=lambda: str(scheduled(fleet)))
        assert f"{C} is new" in fleet.log("one") + fleet.log("two")
        assert f"{B}: state: up → down" in fleet.log("one") + fleet.log("two")
        folders = [path.parent for path in (fleet.folder / "replicas").rglob("identity")]
        copies = [Copies(folder.parent, "nodelist") for folder in folders]
        assert len(folders) == 4
        wait_until(lambda: len({(one.committed().version, one.committed().sha) for one in copies}) == 1)

        rewrite(directory, A, approved=False)
        record = directory.read_one(C)
        assert record
        directory.remove(C, record)
        refreshed(fleet)
        wait_until(lambda: scheduled(fleet) == set(), what=lambda: str(scheduled(fleet)))
