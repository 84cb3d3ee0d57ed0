"""The commands of docker-compose.yml come up as processes of this machine."""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
import yaml

from coordinator import Coordinator
from coordinator.local.redis import find_server, free_port
from tasks.documents.document import Document
from tasks.nodelist.ldap.directory import Directory
from tests.harness.slapd import DEPLOY, PLACES, SlapdServer
from tests.harness.stopping import stop
from tests.harness.waiting import wait_until
from tests.harness.warm import Process, start

ROOT = Path(__file__).parents[3]


SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


LOGIN = "ann:secret"
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
        self.processes: dict[str, Process] = {}

    def local(self, name: str, text: str) -> str:
        """With the configuration that is made for this machine in the place of the image's."""
        if "slapd.conf" in text:
            return str(self.slapd.configuration)
        if text.startswith("${FLOWER_BASIC_AUTH:?"):
            return LOGIN
        text = text.replace("/tmp/beat", str(self.sign(name))).replace(f"{name}@{name}", f"{name}@{gethostname()}")
        text = text.replace("ldap://openldap:1389", self.slapd.url).replace("/etc/ldap/tls", str(self.slapd.directory))
        text = text.replace("0.0.0.0:1389", f"127.0.0.1:{self.slapd.port}")
        text = text.replace("0.0.0.0:1636", f"127.0.0.1:{self.slapd.tls_port}")
        moved = text.replace("redis:6379", f"127.0.0.1:{self.redis}").replace("/data", str(self.folder))
        return moved.replace("0.0.0.0", "127.0.0.1").replace("5555", str(self.flower))

    def start(self, name: str) -> None:
        service = SERVICES[name]
        program, *arguments = [self.local(name, word) for word in service["command"]]
        if name == "redis":
            program = find_server()
            arguments += ["--port", str(self.redis), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        if name == "openldap":
            members = (DEPLOY / "members.ldif").read_text().replace("d1NodeState: up", "d1NodeState: down")
            self.slapd.load((DEPLOY / "base.ldif").read_text(), members)  # nobody to call on
        self.processes[name] = self.run(name, [program, *arguments], self.log(name))

    def run(self, name: str, command: list[str], log: Path) -> Process:
        environment = {key: self.local(name, value) for key, value in SERVICES[name].get("environment", {}).items()}
        path = os.pathsep.join([str(Path(sys.executable).parent), *PLACES, os.environ["PATH"]])
        env = {**os.environ, **environment, "PATH": path}
        with log.open("wb") as output:
            if command[0] == "celery":  # as its script on the path does
                return start(["-m", *command], ROOT, env, stdout=output, stderr=output, session=True)
            return subprocess.Popen(command, cwd=ROOT, env=env, stdout=output, stderr=output, start_new_session=True)

    def healthy(self, names: list[str]) -> dict[str, bool]:
        """What the health check of each says, all asked at once."""
        checks = {}
        for name in names:
            kind, *command = [self.local(name, word) for word in SERVICES[name]["healthcheck"]["test"]]
            shell = ["/bin/sh", "-c"] if kind == "CMD-SHELL" else []
            checks[name] = self.run(name, shell + command, self.folder / f"{name}.health")
        return {name: check.wait(60) == 0 for name, check in checks.items()}

    def sign(self, name: str) -> Path:
        return self.folder / f"{name}.sign"

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def up(self, name: str) -> bool:
        said = self.log(name).read_text()
        assert self.processes[name].poll() is None, said
        return re.search(READY[name], said) is not None

    def members(self) -> set[str]:
        """Those in the nodelist that nodes and beats keep."""
        client = Coordinator(url=f"redis://127.0.0.1:{self.redis}/0")
        found = Document(client.store, "nodelist").fetch().entries("member/")
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
    workers = f"http://127.0.0.1:{composed.flower}/workers"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(workers, timeout=60)
    known = {"Authorization": f"Basic {b64encode(LOGIN.encode()).decode()}"}
    with urllib.request.urlopen(urllib.request.Request(workers, headers=known), timeout=60) as answer:
        assert answer.status == 200
    with Directory(composed.slapd.settings()) as client:
        assert len(client.read().states) == 3
    wait_until(lambda: {"urn:node:mnTestA", "urn:node:mnTestB"} <= composed.members())
    wait_until(lambda: all(composed.healthy(others).values()), 60)
    stop(*(composed.processes[name] for name in others))
    for name in ("beat1", "beat2"):
        os.utime(composed.sign(name), (0, 0))  # the time that passes
    wait_until(lambda: not any(composed.healthy(others).values()), 60)
    for name in others:
        composed.processes[name].send_signal(signal.SIGCONT)
    wait_until(lambda: all(composed.healthy(others).values()), 60)
    assert {name: composed.end(name) for name in reversed(SERVICES)} == dict.fromkeys(SERVICES, 0)
