"""What others change in LDAP reaches each node and each beat of a real fleet within seconds of the refresh."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tasks.ldap import Directory
from tasks.memberserver import MemberServer
from tests.commands import ROOT, environment
from tests.directory import BASE, SlapdServer
from tests.servers import RedisServer
from tests.waiting import wait_until

from .conftest import river_with
from .service import Service

A, B, C = "urn:node:mnA", "urn:node:mnB", "urn:node:mnC"


@contextmanager
def beat(service: Service, name: str) -> Iterator[None]:
    argv = [sys.executable, "-m", "celery", "-A", "tasks", "beat", "-l", "INFO", "-s", str(service.folder / name)]
    argv += ["--pidfile", str(service.folder / f"{name}.pid")]
    with (service.folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=ROOT, env=environment(**service.environ), stdout=log, stderr=log)
    try:
        yield
    finally:
        for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            one.kill()
        process.wait()


def environ_of(slapd: SlapdServer) -> dict[str, str]:
    return {
        "TASKS_LDAP_URL": slapd.url,
        "TASKS_LDAP_BIND_DN": f"cn=coordinator,{BASE}",
        "TASKS_LDAP_PASSWORD": "coordinator",
        "TASKS_REFRESH_INTERVAL": "3600",
    }


def refreshed(service: Service) -> None:
    service.ended(service.shell("from tasks.refresh import refresh; print(refresh())"))


def scheduled(service: Service) -> set[str]:
    store = service.coordinator.store
    with service.redis.client() as client:
        ticks = [name.partition(":tick:")[2] for name in client.scan_iter(store.key("tick", "sync/*"))]
    return {name.removeprefix("sync/") for name in ticks}


def test_what_a_refresh_takes_in_reaches_every_node_and_beat_within_five_seconds(
    slapd: SlapdServer, own_redis: RedisServer, tmp_path: Path
) -> None:
    plain = river_with(base_url="http://127.0.0.1:9")
    with (
        Directory(slapd.settings()) as directory,
        Service(own_redis, tmp_path, list[MemberServer](), **environ_of(slapd)) as it,
    ):
        for node_id in (A, B):
            directory.write(node_id, None, plain.model_copy(update={"identifier": node_id}), True)
        it.node("one", 1)
        it.node("two", 1)
        with beat(it, "first"), beat(it, "second"):
            document = it.coordinator.documents["nodelist"]
            wait_until(lambda: len(document.members()) == 4, 30, lambda: str(document.members()))
            wait_until(lambda: scheduled(it) == {A, B}, 30, lambda: str(scheduled(it)))

            directory.write(C, None, plain.model_copy(update={"identifier": C}), True)
            record = directory.read_one(B)
            assert record
            directory.write(B, record, record.member.model_copy(update={"state": "down"}), True)
            refreshed(it)
            wait_until(lambda: scheduled(it) == {A, C}, 5, lambda: str(scheduled(it)))
            assert f"{C} is new" in it.log("one") + it.log("two")
            assert f"{B}: state: up → down" in it.log("one") + it.log("two")
            versions = {path.read_text() for path in (tmp_path / "replicas").rglob("committed")}
            assert len(versions) == 1
            record = directory.read_one(A)
            assert record
            directory.write(A, record, record.member, False)
            record = directory.read_one(C)
            assert record
            directory.remove(C, record)
            refreshed(it)
            wait_until(lambda: scheduled(it) == set(), 5, lambda: str(scheduled(it)))
