"""The RabbitMQ of the tests: loopback ports, a folder and an epmd of its own, all gone at the end."""

import os
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from celery import Celery

from tests.harness.ports import free_port
from tests.harness.server import Server, program

PLACES = "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin"
# In the server itself: it says what the code that comes is worth, a connection each. Wrong code ends it.
LISTENER = """
Asker = self(),
spawn(fun() ->
  {ok, Port} = gen_tcp:listen(PORT, [binary, {packet, 4}, {active, false}, {ip, {127, 0, 0, 1}}, {reuseaddr, true}]),
  Asker ! listening,
  (fun Loop() ->
    {ok, Connection} = gen_tcp:accept(Port),
    {ok, Code} = gen_tcp:recv(Connection, 0),
    {ok, Tokens, _} = erl_scan:string(binary_to_list(Code)),
    {ok, Parsed} = erl_parse:parse_exprs(Tokens),
    {value, Value, _} = erl_eval:exprs(Parsed, []),
    ok = gen_tcp:send(Connection, io_lib:format("~p", [Value])),
    ok = gen_tcp:close(Connection),
    Loop()
  end)()
end),
receive listening -> ok end.
"""


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


class RabbitServer(Server):
    """One node of RabbitMQ without plugins. Tests keep apart by `vhost`."""

    patience = 60.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "log")
        self.folder = folder
        self._epmd: subprocess.Popen[bytes] | None = None
        self._listener = free_port()
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
        if self.process and self.process.poll() is not None:
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
        """The value of Erlang's code in the server. `rabbitmqctl` would start an Erlang of its own each time, which
        costs as much as a worker.
        """
        with socket.create_connection(("127.0.0.1", self._listener), timeout=60) as connection:
            said = code.encode()
            connection.sendall(len(said).to_bytes(4, "big") + said)
            with connection.makefile("rb") as answer:
                value = answer.read()[4:].decode()
        assert value, f"the server cannot evaluate {code}: {self.log.read_text()[-3000:]}"
        return value

    def options(self) -> dict[str, Any]:
        return {"env": self._environ, "cwd": self.folder}

    def prepare(self) -> None:
        port = self._environ["ERL_EPMD_PORT"]
        self._epmd = self.run(program("epmd", PLACES), "-port", port, "-address", "127.0.0.1")

    def argv(self) -> list[str]:
        return [program("rabbitmq-server", PLACES), "-eval", LISTENER.replace("PORT", str(self._listener))]

    def answers(self) -> bool:
        """The listener comes once RabbitMQ has started."""
        with suppress(ConnectionRefusedError):
            return self.evaluate("rabbit:is_running().") == "true" and super().answers()
        return False

    def alarm(self, on: bool, of: str = "memory") -> None:
        """The alarm of its memory or disk: it reads nothing more from whoever publishes."""
        limit = f"rabbit_disk_monitor:set_disk_free_limit({10**18 if on else 50_000_000})"
        if of == "memory":
            limit = f"vm_memory_monitor:set_vm_memory_high_watermark({0 if on else 0.4})"
        self.evaluate(f"{limit}.")

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._epmd:
            self._epmd.kill()
            self._epmd.wait()
