"""The embedded Redis on a real server: who may have its directory, what it keeps, and when it ends."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from coordinator.local.redis import DirectoryTaken, EmbeddedRedis, EmbeddedUnavailable, _programs
from tests.harness.command import gone
from tests.harness.waiting import wait_until

STARTER = """
import sys, time
from coordinator.local.redis import EmbeddedRedis
server = EmbeddedRedis(sys.argv[1])
server.start()
print(server.pid, server.url, flush=True)
time.sleep(600)
"""


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """Another process with an embedded Redis on tmp_path/redis: itself, the server's pid and url."""
    argv = [sys.executable, "-c", STARTER, str(tmp_path / "redis")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        pid, url = process.stdout.readline().split()
        yield process, int(pid), url
        process.kill()


def test_it_answers_on_the_loopback_only_to_those_who_have_its_url(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis") as server, redis.Redis.from_url(server.url) as client:
        assert client.ping()
        port = client.connection_pool.connection_kwargs["port"]
        with redis.Redis(port=port, retry=Retry(NoBackoff(), 0)) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        addresses = {
            (c.laddr.ip, c.laddr.port)
            for c in psutil.Process(server.pid).net_connections()
            if c.status == psutil.CONN_LISTEN
        }
        assert addresses == {("127.0.0.1", port)}


def test_it_keeps_everything_on_disk_and_evicts_nothing(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis") as server, redis.Redis.from_url(server.url) as client:
        assert client.config_get("appendonly", "maxmemory-policy") == {
            "appendonly": "yes",
            "maxmemory-policy": "noeviction",
        }


def test_its_directory_is_for_its_owner_alone_and_holds_no_password(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis") as server:
        password = server.url.split("@")[0].rpartition(":")[2]
        assert stat.S_IMODE((tmp_path / "redis").stat().st_mode) == 0o700
        assert not any(
            password.encode() in path.read_bytes() for path in (tmp_path / "redis").rglob("*") if path.is_file()
        )
        assert not any(password in word for word in psutil.Process(server.pid).cmdline())


def test_a_stopped_server_is_gone_and_the_next_one_has_its_data(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis") as server, redis.Redis.from_url(server.url) as client:
        client.set("kept", "yes")
        pid = server.pid
    assert not psutil.pid_exists(pid)
    with EmbeddedRedis(tmp_path / "redis") as server, redis.Redis.from_url(server.url) as client:
        assert client.get("kept") == b"yes"


def test_a_killed_server_comes_back_under_the_same_url_with_its_data(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis") as server:
        url = server.url
        with redis.Redis.from_url(url) as client:
            client.set("kept", "yes")
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not server.pid)
        server.start()
        assert server.url == url
        with redis.Redis.from_url(url) as client:
            assert client.get("kept") == b"yes"


def test_what_a_power_cut_tore_is_whole_or_not_there_also_after_the_restart_behind_it(tmp_path: Path) -> None:
    both = "redis.call('SET', ARGV[1], 1); redis.call('SET', ARGV[2], 2)"
    with EmbeddedRedis(tmp_path / "redis") as server, redis.Redis.from_url(server.url, decode_responses=True) as client:

        def write(*names: str) -> None:
            client.eval(both, 0, *names)
            wait_until(lambda: client.info("persistence")["aof_pending_bio_fsync"] == 0)

        def restart(cut: int) -> None:
            os.kill(server.pid, signal.SIGKILL)
            wait_until(lambda: not server.pid)
            newest = max((tmp_path / "redis").rglob("*.incr.aof"), key=lambda path: path.stat().st_mtime)
            os.truncate(newest, newest.stat().st_size - cut)
            server.start()

        write("a", "b")
        restart(cut=len("*1\r\n$4\r\nEXEC\r\n") + 5)
        wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        write("c", "d")
        restart(cut=0)
        assert sorted(client.keys()) == ["c", "d"]


def harmed(directory: Path, pattern: str, harm: Callable[[bytes], bytes]) -> EmbeddedRedis:
    """A server that was killed, whose newest file of this pattern was harmed; its keys are `first` and `last`."""
    with EmbeddedRedis(directory) as server, redis.Redis.from_url(server.url, decode_responses=True) as client:
        client.set("first", "yes")
        client.bgrewriteaof()
        wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        client.set("last", "yes")
        wait_until(lambda: client.info("persistence")["aof_pending_bio_fsync"] == 0)
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not server.pid)
    newest = max(directory.rglob(pattern), key=lambda path: path.stat().st_mtime)
    newest.write_bytes(harm(newest.read_bytes()))
    return EmbeddedRedis(directory)


@pytest.fixture(params={os.path.realpath(one): one for one in _programs()}.values())
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each server of this machine is the one that is found."""
    program = str(request.param)
    monkeypatch.setattr("coordinator.local.redis.find_server", lambda: program)
    return program


def test_a_damaged_end_is_refused_with_the_command_that_cuts_it_off(tmp_path: Path, program: str) -> None:
    directory = tmp_path / "a folder"
    server = harmed(directory, "*.incr.aof", lambda text: text + bytes(100))
    with pytest.raises(EmbeddedUnavailable, match=r"cannot read the end of .*\.incr\.aof: it is damaged") as refusal:
        server.start()
    command = str(refusal.value).rpartition("is kept: ")[2]
    done = subprocess.run(["bash", "-c", command], input="y\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with server, redis.Redis.from_url(server.url, decode_responses=True) as client:
        assert sorted(client.keys()) == ["first", "last"]


@pytest.mark.parametrize(
    ("pattern", "harm"),
    [
        ("*.incr.aof", lambda text: text.replace(b"SET", b"SIT")),
        ("*.base.rdb", lambda text: text[:-20]),
        ("*.base.rdb", lambda text: bytes(len(text))),
        ("*.manifest", lambda text: b""),
        ("*.manifest", lambda text: text[:20]),
    ],
)
def test_what_no_tool_mends_is_refused_as_damaged(
    tmp_path: Path, program: str, pattern: str, harm: Callable[[bytes], bytes]
) -> None:
    server = harmed(tmp_path / "redis", pattern, harm)
    with pytest.raises(EmbeddedUnavailable, match=r"cannot read the data in .* put a copy of the data in place"):
        server.start()


def test_a_directory_in_use_is_refused_and_its_server_goes_on(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis") as server:
        with pytest.raises(DirectoryTaken, match="in use by another") as refusal:
            EmbeddedRedis(tmp_path / "redis").start()
        assert refusal.value.directory == tmp_path / "redis"
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()


def test_it_dies_with_a_killed_parent_and_the_next_one_has_its_data(
    tmp_path: Path, starter: tuple[subprocess.Popen[str], int, str]
) -> None:
    parent, pid, url = starter
    with redis.Redis.from_url(url) as client:
        client.set("kept", "yes")
    parent.kill()
    with EmbeddedRedis(tmp_path / "redis") as server, redis.Redis.from_url(server.url) as client:
        assert gone(pid)
        assert client.get("kept") == b"yes"


def test_the_terminals_interrupt_does_not_reach_it(starter: tuple[subprocess.Popen[str], int, str]) -> None:
    parent, pid, _ = starter
    assert os.getsid(pid) == pid
    assert os.getsid(pid) != os.getsid(parent.pid)


def test_its_url_serves_redis_cli_too(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis") as server:
        argv = [shutil.which("redis-cli") or "valkey-cli", "-u", server.url, "LPUSH", "a", "b"]
        done = subprocess.run(argv, capture_output=True, text=True)
    assert done.stdout.strip() == "1", done.stderr


def test_paths_with_spaces_quotes_and_umlauts_work(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / 'a "quoted" Größe \\ here') as server, redis.Redis.from_url(server.url) as client:
        assert client.set("kept", "yes")
        assert any((server.directory).glob("appendonly*"))


def test_a_port_that_somebody_was_faster_to_take_is_left_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = [taken.getsockname()[1]]
        real = socket.create_server

        def create_server(*args: object, **kwargs: object) -> socket.socket:
            return taken.dup() if ports and ports.pop() else real(*args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr("coordinator.local.redis.socket.create_server", create_server)
        with EmbeddedRedis(tmp_path / "redis") as server, redis.Redis.from_url(server.url) as client:
            assert client.ping()
            assert not ports


def test_another_thread_is_refused_since_the_server_would_end_with_it(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            EmbeddedRedis(tmp_path / "redis").start()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])
