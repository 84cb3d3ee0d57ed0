"""DataONE's member node, GMN, from its approval to the deletion of its objects: `make dataone` installs it."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.fleet.dataone.test_dataone import python
from tests.fleet.tasks.conftest import A
from tests.fleet.tasks.service import Service
from tests.fleet.tasks.test_web import OURS, SUBJECT, Door, certificate, door
from tests.harness.command import listed, told
from tests.harness.redis import RedisServer
from tests.harness.server import Server
from tests.harness.waiting import wait_until

__all__ = ["door"]

NODE = Path(__file__).with_name("node.py")
WRITER = "CN=writer,OU=nodes,O=Federation"
WRITE = """
import io, re, sys
import d1_common.const, d1_common.util, d1_common.utils.filesystem
from d1_client.mnclient_2_0 import MemberNodeClient_2_0
from d1_common import system_metadata
from d1_common.wrap import access_policy

url, pem, act, *pids = sys.argv[1:]
shown = re.search("BEGIN CERTIFICATE-----\\n(.*?)\\n-----END", open(pem).read(), re.S)[1].replace("\\n", "")
client, who = MemberNodeClient_2_0(url), {"VENDOR-INCLUDE-CERTIFICATE": shown}

def metadata(pid, **more):
    made = system_metadata.generate_system_metadata_pyxb(
        pid=pid, format_id="application/octet-stream", sciobj_stream=io.BytesIO(pid.encode()), is_private=False,
        submitter_str=WRITER, rights_holder_str=WRITER, authoritative_mn_urn=NODE, **more,
    )
    with access_policy.wrap_sysmeta_pyxb(made) as policy:
        policy.add_perm("public", "read")
    return made

if act == "create":
    for pid in pids:
        client.create(pid, io.BytesIO(pid.encode()), metadata(pid), vendorSpecific=who)
elif act == "update":
    client.update(pids[0], io.BytesIO(pids[1].encode()), pids[1], metadata(pids[1]), vendorSpecific=who)
else:
    getattr(client, act)(pids[0], vendorSpecific=who)
""".replace("WRITER", repr(WRITER)).replace("NODE", repr(A))


class Gmn(Server):
    """GMN with a database of its own. It describes itself as the member A, with the certificate of A."""

    patience = 90.0

    def __init__(self, folder: Path, database: str) -> None:
        super().__init__(folder / "gmn.log")
        at, self.folder = urlsplit(database), folder
        self.url = f"http://127.0.0.1:{self.port}"
        self.writer = str(certificate(OURS, "writer", folder))
        (folder / "gmn").mkdir()
        self.environ = {
            "PATH": os.environ["PATH"], "GMN_FOLDER": str(folder / "gmn"), "GMN_NODE": A, "GMN_PORT": str(self.port),
            "GMN_SUBJECT": SUBJECT, "GMN_WRITER": WRITER, "GMN_DATABASE_NAME": at.path[1:],
            "GMN_DATABASE_USER": str(at.username), "GMN_DATABASE_PORT": str(at.port),
        }  # fmt: skip

    def argv(self) -> list[str]:
        return [python(), str(NODE), "serve"]

    def options(self) -> dict[str, object]:
        return {"env": self.environ}

    def answers(self) -> bool:
        return super().answers() and httpx.get(f"{self.url}/v2/monitor/ping", timeout=60).status_code == 200

    def write(self, act: str, *pids: str) -> None:
        """As a scientist's program does: create, update, archive, delete."""
        self.called("-c", WRITE, self.url, self.writer, act, *pids)

    def synchronize(self, door: Door, pid: str) -> str:
        """As GMN asks a coordinating node. Says whether that had the object before."""
        mine = str(certificate(OURS, "mnA", self.folder))
        return self.called(str(NODE), "synchronize", door.url.removesuffix("/v2"), mine, pid).splitlines()[-1]

    def called(self, *args: str) -> str:
        done = subprocess.run([python(), *args], capture_output=True, text=True, timeout=60, env=self.environ)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def service(own_redis: RedisServer, tmp_path: Path) -> Iterator[Service]:
    with Service(own_redis, tmp_path, [], TASKS_MARGIN="0") as service:
        yield service


@pytest.fixture
def gmn(tmp_path: Path, database: str) -> Iterator[Gmn]:
    with Gmn(tmp_path, database) as gmn:
        yield gmn


def test_gmn_is_approved_harvested_asks_for_its_objects_and_deletes_them(
    service: Service, gmn: Gmn, door: Door
) -> None:
    def refreshed() -> None:
        told(service.call("refresh", A, "--wait", "--why", "a test"))

    first, second, third, asked = "p/0+&?ü", "p/1", "p/2", "p/3+&?ü"
    gmn.write("create", first, second)
    service.node("one")
    told(service.call("members", "check", gmn.url))
    told(service.call("members", "add", gmn.url, "--why", "a test"))
    assert listed(service.call("members", "--json"))[0]["obstacle"] == "it is not approved"
    told(service.call("members", "approve", A, "--why", "a test"))
    refreshed()
    gmn.write("update", second, third)
    refreshed()
    gmn.write("create", asked)
    assert gmn.synchronize(door, asked) == "not there"
    wait_until(lambda: asked in service.pids(A))
    assert gmn.synchronize(door, asked) == "there"
    gmn.write("archive", first)
    refreshed()
    gmn.write("delete", asked)
    job_id = service.shell(f"from tasks.sync import synchronize; print(synchronize({A!r}, complete=True).id)")
    assert service.ended(job_id).result["gone"] == 1

    events = [(row["kind"], row["pid"]) for row in listed(service.call("events", "--json"))]
    assert sorted(events[:2]) == [("new", first), ("new", second)]
    assert sorted(events[2:4]) == [("changed", second), ("new", third)]
    assert events[4:] == [("new", asked), ("archived", first), ("gone", asked)]
    states = {row["pid"]: row for row in service.catalog.objects(A)}
    assert {pid: row["archived"] for pid, row in states.items()} == {first: True, second: False, third: False}
    assert (states[second]["obsoleted_by"], states[third]["obsoletes"]) == (third, second)
    assert "p/3" in json.dumps(listed(service.call("catalog", A, "--gone", "--json")))
