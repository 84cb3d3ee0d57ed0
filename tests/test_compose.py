"""What docker-compose.yml says; tests/fleet/tasks/test_compose.py runs its commands."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from coordinator import Settings
from tests.harness.slapd import DEPLOY

ROOT = Path(__file__).parent.parent
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


def test_there_are_redis_ldap_two_nodes_two_beats_and_flower() -> None:
    assert set(SERVICES) == {"redis", "openldap", "cn1", "cn2", "beat1", "beat2", "flower"}


def test_redis_keeps_everything_and_evicts_nothing() -> None:
    command = " ".join(SERVICES["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command


def test_the_image_of_redis_has_functions() -> None:
    name, _, version = SERVICES["redis"]["image"].partition(":")
    assert (name, int(version.split(".")[0]) >= 7) == ("redis", True)


def test_nothing_is_published_beyond_this_machine() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:5555:5555"]


def test_no_server_needs_a_port_that_only_root_may_open() -> None:
    commands = " ".join(" ".join(service.get("command", [])) for service in SERVICES.values())
    ports = [int(port) for port in re.findall(r"(?::|--port=)(\d+)", commands)]
    assert ports == [1389, 1636, 5555]
    assert "USER openldap" in (DEPLOY / "Dockerfile").read_text()
    addresses = SERVICES["cn1"]["environment"]["TASKS_LDAP_URL"], *SERVICES["openldap"]["healthcheck"]["test"][-1:]
    assert all(address.endswith(":1389") for address in addresses)


def test_each_service_has_a_health_check_that_names_itself() -> None:
    assert all("test" in service["healthcheck"] for service in SERVICES.values())
    for name in ("cn1", "cn2"):
        assert f"{name}@{SERVICES[name]['hostname']}" in SERVICES[name]["healthcheck"]["test"]


def test_a_node_has_longer_to_stop_than_it_may_drain_and_the_page_on_supervisors_says_so_of_each() -> None:
    section = (ROOT / "docs" / "operations.md").read_text().partition("### What starts a node again?")[2]
    rows = dict(re.findall(r"^\| (systemd|supervisord|Docker) \| (.*) \|$", section, re.MULTILINE))
    said = [re.findall(r"(?:TimeoutStopSec=|stopwaitsecs=|stop_grace_period: )(\d+)", row) for row in rows.values()]
    graces = {name: int(SERVICES[name]["stop_grace_period"].removesuffix("s")) for name in ("cn1", "cn2")}
    assert [len(found) for found in said] == [1, 1, 1]
    assert min(*(int(found[0]) for found in said), *graces.values()) > Settings().drain_timeout
    for name in graces:
        written = {field: str(SERVICES[name][field]).lower() for field in ("restart", "stop_grace_period", "init")}
        assert [field for field, value in written.items() if f"{field}: {value}" not in rows["Docker"]] == []


def test_flower_has_a_login_that_nobody_knows_from_this_file() -> None:
    login = SERVICES["flower"]["environment"]["FLOWER_BASIC_AUTH"]
    assert re.fullmatch(r"\$\{FLOWER_BASIC_AUTH:\?[^}]+\}", login)


def test_services_share_one_redis_one_folder_and_one_nodelist_and_wait_for_those_servers() -> None:
    ours = [service for name, service in SERVICES.items() if name not in ("redis", "openldap")]
    assert all(ours[0]["environment"].items() <= service["environment"].items() for service in ours)
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


def test_compose_itself_takes_the_file_and_wants_a_login_for_flower() -> None:
    def config(**environ: str) -> subprocess.CompletedProcess[str]:
        argv = [Path(sys.executable).parent / "docker-compose", "-f", ROOT / "docker-compose.yml", "config", "-q"]
        return subprocess.run(argv, env={"PATH": os.environ["PATH"], **environ}, capture_output=True, text=True)

    assert config(FLOWER_BASIC_AUTH="ann:secret").returncode == 0
    assert "set it to user:password" in config().stderr


def test_an_ordinary_app_is_in_containers_as_its_example_shows() -> None:
    """tests/fleet/test_existing_app.py runs the command of its worker."""
    folder = ROOT / "examples" / "existing_app"
    argv = [Path(sys.executable).parent / "docker-compose", "-f", folder / "compose.yml", "config", "--format", "json"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    assert services["redis"]["command"] == SERVICES["redis"]["command"]
    grace = re.fullmatch(r"(\d+)m(\d+)s", services["worker"]["stop_grace_period"])
    assert grace
    assert int(grace[1]) * 60 + int(grace[2]) > Settings().drain_timeout
    copied = re.findall(r"^COPY (\S+)", (folder / "Dockerfile").read_text(), re.MULTILINE)
    assert [name for name in copied if not (folder / name).exists()] == []
