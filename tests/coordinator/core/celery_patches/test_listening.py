"""A worker that hears nothing of its Redis broker for too long has a connection error, and only then."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kombu import Connection, Queue

from coordinator.core.celery_patches.listening import PATIENCE, listen, misfit
from tests.harness.command import environment
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

LOOKS = int(2 * PATIENCE)  # a second more than that is for the answer itself


@pytest.fixture
def connection(redis_server: RedisServer, prefix: str) -> Iterator[Connection]:
    options = {"global_keyprefix": f"{prefix}."}
    with Connection(redis_server.url(1), transport_options=options) as one:
        yield one
        one.default_channel.queue_purge("q")


def test_a_silence_is_an_error_once_it_is_too_long(connection: Connection) -> None:
    listening = listen(connection)
    assert listening
    with connection.Consumer(Queue("q"), accept=["json"]):
        for _ in range(LOOKS):
            listening.look(0.5)
        with suppress(TimeoutError):  # an answer that is empty
            connection.drain_events(timeout=2)
        for _ in range(LOOKS):
            listening.look(0.5)
        with pytest.raises(ConnectionResetError, match="has not answered for 11 s"):
            listening.look(2.0)


def test_a_worker_that_consumes_nothing_or_has_no_room_waits_for_no_answer(connection: Connection) -> None:
    listening = listen(connection)
    assert listening
    for _ in range(LOOKS * 2):
        listening.look(0.5)
    with connection.Consumer(Queue("q"), accept=["json"], prefetch_count=1, on_message=lambda _: None):
        connection.Producer().publish("one", routing_key="q")
        connection.drain_events(timeout=5)
        for _ in range(LOOKS * 2):
            listening.look(0.5)


def test_another_broker_tells_its_loss_itself() -> None:
    with Connection("memory://") as connection:
        assert listen(connection) is None


SHOP = """
from celery import Celery
from coordinator import Coordinator

app = Celery("shop", broker={broker!r})
Coordinator(app)
"""


@pytest.mark.parametrize(
    ("kombu", "client", "fits"),
    [
        ("5.6.2", "7.0.1", False), ("5.4.0", "8.1.0", False), ("5.5.4", "6.5.0", False), ("5.6.2", "6.4.0", True),
        ("5.4.2", "5.2.1", True), ("5.7.0", "6.4.0", True), ("5.7.0b1", "8.1.0", True), ("6.0", "9.0", True),
    ],
)  # fmt: skip
def test_an_older_kombu_does_not_know_a_newer_redis_client(kombu: str, client: str, fits: bool) -> None:
    assert bool(misfit(kombu, client)) != fits


def test_a_worker_warns_of_a_kombu_that_does_not_know_its_redis_client(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    for name, version in (("kombu", "5.6.2"), ("redis", "7.0.1")):
        told = tmp_path / f"{name}-{version}.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (tmp_path / "shop.py").write_text(SHOP.format(broker=redis_server.url(1)))
    argv = [sys.executable, "-m", "celery", "-A", "shop", "worker", "-P", "solo", "-l", "INFO", "--without-mingle"]
    with (tmp_path / "log").open("w") as log:
        env = environment(COORDINATOR_PREFIX=redis_server.fresh_prefix())
        worker = subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=log, stderr=log)
    try:
        wait_until(lambda: " ready." in (tmp_path / "log").read_text())
    finally:
        worker.kill()
        worker.wait()
    assert "kombu 5.6.2 does not know redis-py 7.0.1" in (tmp_path / "log").read_text()
    assert "Install kombu 5.7 or later, or redis-py below 6.5" in (tmp_path / "log").read_text()
