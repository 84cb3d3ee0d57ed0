"""The RabbitMQ of the tests: loopback ports, a folder and an epmd of its own, all gone at the end."""

import os
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from celery import Celery

from coordinator.local.redis import free_port
from tests.harness.waiting import wait_until

PLACES = "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin"


class Broker(NamedTuple):
    """A vhost of the server, for one test or for the tests of a file."""

    server: "RabbitServer"
    vhost: str

    @property
    def url(self) -> str:
        return self.server.url(self.vhost)

    def queues(self) -> set[str]:
        return self.server.queues(self.vhost)

    def waiting(self, app: Celery, queue: str) -> int:
        """Messages of a queue that nobody has received; asks at little cost."""
        with app.connection_for_read() as connection:
            return int(connection.channel().queue_declare(queue, passive=True).message_count)

    def taken(self, app: Celery, queue: str) -> Iterator[Any]:
        """Take the messages that wait in a queue; one that is not there yet has none."""
        with app.connection_for_read() as connection, suppress(*connection.channel_errors):
            channel = connection.channel()
            while (message := channel.basic_get(queue, no_ack=True)) is not None:
                yield message

    def messages(self) -> int:
        """In all queues: those that wait, and those that nobody has acknowledged."""
        return int(
            self.server.evaluate(
                f'lists:sum([N || [{{messages, N}}] <- rabbit_amqqueue:info_all(<<"{self.vhost}">>, [messages])]).'
            )
        )


class NoRabbitMQ(Exception):
    """There is no RabbitMQ here, or it does not start; the text says why."""


class RabbitServer:
    """One node of RabbitMQ without plugins. Tests keep apart by `vhost`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._log = folder / "log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._server: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plugins").write_text("[].\n")
        self._environ = (
            os.environ
            | {
                "HOME": str(folder),  # it has the cookie
                "ERL_EPMD_ADDRESS": "127.0.0.1",
                "ERL_EPMD_PORT": str(free_port()),
                "RABBITMQ_CONFIG_FILE": str(folder / "no"),
                "RABBITMQ_CONF_ENV_FILE": str(folder / "no"),
                "RABBITMQ_DIST_PORT": str(free_port()),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
                "RABBITMQ_LOGS": "-",
                "RABBITMQ_LOG_BASE": str(folder),
                "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
                "RABBITMQ_NODENAME": f"t{uuid.uuid4().hex[:10]}@localhost",
                "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
                "RABBITMQ_NODE_PORT": str(self.port),
                "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes Erlang
            }
        )

    def url(self, vhost: str = "/") -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{vhost}"

    def vhost(self) -> str:
        """The name of a new one, that nobody else has. A test that failed may have left the server dead."""
        if self._server is not None and self._server.poll() is not None:
            self.start()
        name = f"v{uuid.uuid4().hex[:10]}"
        rights = ", ".join(['<<".*">>'] * 3)
        self.evaluate(
            f'ok = rabbit_vhost:add(<<"{name}">>, <<"tests">>), rabbit_auth_backend_internal:set_permissions('
            f'<<"guest">>, <<"{name}">>, {rights}, <<"tests">>).'
        )
        return name

    def queues(self, vhost: str) -> set[str]:
        found = self.evaluate(f'[N || {{resource, _, queue, N}} <- rabbit_amqqueue:list_names(<<"{vhost}">>)].')
        return {part.strip(' \n[]<>"') for part in found.split(",")} - {""}

    def evaluate(self, code: str) -> str:
        argv = [found("rabbitmqctl"), "eval", code]
        done = subprocess.run(argv, env=self._environ, capture_output=True, text=True, timeout=60, cwd=self.folder)
        assert not done.returncode, done.stdout + done.stderr
        return done.stdout

    def start(self) -> None:
        """Once more after `kill`, too: on the same port, with what it had on its disk."""
        if not self._processes:
            self._run(found("epmd"), "-port", self._environ["ERL_EPMD_PORT"], "-address", "127.0.0.1")
        self._server = self._run(found("rabbitmq-server"))
        wait_until(self._answers, 60, lambda: self._log.read_text()[-3000:])

    def kill(self) -> None:
        """As a power loss of this server alone would."""
        assert self._server
        self._processes.remove(self._server)
        _end(self._server)

    def pause(self) -> None:
        """It accepts connections and reads nothing."""
        assert self._server
        os.killpg(self._server.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._server
        os.killpg(self._server.pid, signal.SIGCONT)

    def alarm(self, on: bool) -> None:
        """The alarm of its memory: it reads nothing more from whoever publishes."""
        self.evaluate(f"vm_memory_monitor:set_vm_memory_high_watermark({0 if on else 0.4}).")

    def refuse(self, vhost: str, seconds: float) -> None:
        """Have the queues of nodes take nothing for so long, as full ones do; whoever publishes hears nothing of it."""
        full = '[{<<"max-length">>, 0}, {<<"overflow">>, <<"reject-publish">>}]'
        about, tests = f'<<"{vhost}">>, <<"full">>', '<<"tests">>'
        self.evaluate(
            f'ok = rabbit_policy:set({about}, <<"^coordinator[.]node">>, {full}, 0, <<"queues">>, {tests}), '
            f"spawn(fun() -> timer:sleep({seconds * 1000:.0f}), rabbit_policy:delete({about}, {tests}) end)."
        )

    def _run(self, *argv: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                argv, env=self._environ, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def _answers(self) -> bool:
        for process in self._processes:
            if process.poll() is not None:
                raise NoRabbitMQ(f"RabbitMQ does not start: {self._log.read_text().strip()[-1000:]}")
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        return False

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)  # with its helpers: a session of its own
    process.wait(20)


def found(program: str) -> str:
    """The newest below Debian's folder, else the one on the PATH: its scripts ask for a user of their own."""
    newest_first = sorted(Path("/").glob(f"{PLACES[1:]}/{program}"), reverse=True)
    path = str(newest_first[0]) if newest_first else shutil.which(program)
    if path is None:
        raise NoRabbitMQ(f"no RabbitMQ: {program} is neither below {PLACES} nor on the PATH (make system)")
    return path
