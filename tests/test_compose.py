"""docker-compose.yml, without an engine: what it says, and each of its commands run as a process."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from coordinator import Coordinator
from coordinator.embedded import find_server
from tasks.ldap import Directory
from tests.directory import DEPLOY, PLACES, SlapdServer
from tests.servers import free_port
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
READY = {
    "redis": "Ready to accept connections",
    "openldap": "slapd starting",
    "cn1": r"cn1@\S+ ready",
    "cn2": r"cn2@\S+ ready",
    "beat1": "beat: Starting",
    "beat2": "beat: Starting",
    "flower": "Visit me at",
}


class Composed:
    """The services as processes of this machine: another port for Redis and Flower, another folder for the data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.redis, self.flower = free_port(), free_port()
        self.slapd = SlapdServer(folder / "slapd")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def local(self, text: str) -> str:
        """With the configuration that is made for this machine in the place of the image's."""
        if "slapd.conf" in text:
            return str(self.slapd.configuration)
        text = text.replace("ldap://openldap", self.slapd.url).replace("/etc/ldap/tls", str(self.slapd.directory))
        text = text.replace("0.0.0.0:389", f"127.0.0.1:{self.slapd.port}")
        text = text.replace("0.0.0.0:636", f"127.0.0.1:{self.slapd.tls_port}")
        moved = text.replace("redis:6379", f"127.0.0.1:{self.redis}").replace("/data", str(self.folder))
        return moved.replace("0.0.0.0", "127.0.0.1").replace("5555", str(self.flower))

    def start(self, name: str) -> None:
        service = SERVICES[name]
        program, *arguments = [self.local(word) for word in service["command"]]
        if name == "redis":
            program = find_server()
            arguments += ["--port", str(self.redis), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        if name == "openldap":
            members = (DEPLOY / "members.ldif").read_text().replace("d1NodeState: up", "d1NodeState: down")
            self.slapd.load((DEPLOY / "base.ldif").read_text(), members)  # nobody to call on
        environment = {key: self.local(value) for key, value in service.get("environment", {}).items()}
        path = f"{Path(sys.executable).parent}{os.pathsep}{PLACES}"
        with self.log(name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [program, *arguments],
                cwd=ROOT,
                env={**os.environ, **environment, "PATH": path},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def up(self, name: str) -> bool:
        said = self.log(name).read_text()
        assert self.processes[name].poll() is None, said
        return re.search(READY[name], said) is not None

    def members(self) -> set[str]:
        """Those in the nodelist that nodes and beats keep."""
        client = Coordinator(url=f"redis://127.0.0.1:{self.redis}/0")
        found = client.documents["nodelist"].fetch().entries("member/")
        client.store.close()
        return {entry.removeprefix("member/") for entry in found}

    def end(self, name: str) -> int:
        self.processes[name].send_signal(signal.SIGTERM)
        return self.processes[name].wait(30)


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Composed]:
    made = Composed(tmp_path)
    yield made
    for process in made.processes.values():
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_there_are_redis_ldap_two_nodes_two_beats_and_flower() -> None:
    assert SERVICES.keys() == READY.keys()


def test_redis_keeps_everything_and_evicts_nothing() -> None:
    command = " ".join(SERVICES["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command


def test_nothing_is_published_beyond_this_machine() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:5555:5555"]


def test_services_share_one_redis_one_folder_and_one_nodelist_and_wait_for_those_servers() -> None:
    ours = [service for name, service in SERVICES.items() if name not in ("redis", "openldap")]
    assert all(service["environment"] == ours[0]["environment"] for service in ours)
    assert all(service["volumes"] == ["data:/data", "ldap-tls:/etc/ldap/tls:ro"] for service in ours)
    healthy = {"condition": "service_healthy"}
    assert all(service["depends_on"] == {"redis": healthy, "openldap": healthy} for service in ours)


def test_the_image_holds_all_that_the_services_import() -> None:
    kept = (ROOT / ".dockerignore").read_text().split()
    assert {
        "!coordinator",
        "!tasks",
        "!beat_schedule.py",
        "!pyproject.toml",
        "!requirements.txt",
        "!requirements-ldap.txt",
    } <= set(kept)


def test_the_ldap_image_holds_what_its_command_reads() -> None:
    image = (DEPLOY / "Dockerfile").read_text()
    assert "COPY . /etc/ldap/dataone" in image
    assert set(re.findall(r"/etc/ldap/dataone/([\w.]+)", image)) <= {path.name for path in DEPLOY.iterdir()}
    mounted = {volume.split(":")[1] for volume in SERVICES["openldap"]["volumes"]}
    assert all(place in (DEPLOY / "slapd.conf").read_text() for place in mounted)


def test_each_command_comes_up_and_ends_when_asked(composed: Composed) -> None:
    servers = ["redis", "openldap"]
    for name in servers:
        composed.start(name)
    for name in servers:
        wait_until(partial(composed.up, name), 60)
    others = [name for name in SERVICES if name not in servers]
    for name in others:
        composed.start(name)
    for name in others:
        wait_until(partial(composed.up, name), 60)
    with urllib.request.urlopen(f"http://127.0.0.1:{composed.flower}/healthcheck", timeout=10) as answer:
        assert answer.status == 200
    with Directory(composed.slapd.settings()) as client:
        assert len(client.read().records) == 3
    wait_until(lambda: {"urn:node:mnTestA", "urn:node:mnTestB"} <= composed.members(), 20)
    assert {name: composed.end(name) for name in reversed(SERVICES)} == dict.fromkeys(SERVICES, 0)
