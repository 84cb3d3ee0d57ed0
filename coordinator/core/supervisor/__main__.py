"""The main program of the supervisor, which a worker starts: `python -m coordinator.core.supervisor FD`.

The first line of its standard input is the configuration, so that no secret is on the command line. After each step the
supervisor writes a byte to the file descriptor FD, as a sign of life for the worker.
"""

from __future__ import annotations

import json
import logging
import queue
import socket
import sys
import time
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, TextIO, cast

from coordinator.core.fleet import processes
from coordinator.core.fleet.companion import Companion, LineReader, outlive_signals, sign_of_life
from coordinator.core.fleet.nodes import About
from coordinator.core.store.client import Store
from coordinator.core.store.server import log_server
from coordinator.core.supervisor.supervisor import Supervisor, SupervisorConfig
from coordinator.core.supervisor.wakes import WakeReader, wake_worker
from coordinator.errors import CoordinatorError, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from coordinator.core.settings import Settings

logger = logging.getLogger(__name__)

_PATIENCE = 20.0  # seconds without a sign of life after which the maintenance process is killed
_FIRST = 180.0  # seconds that maintenance has until its first sign of life, since it imports the app before


class WorkersSettings(SimpleNamespace):
    """The settings that the worker sent, with the attributes of `Settings`. The worker has checked them, so that this
    process need not import pydantic.
    """

    def source(self, name: str) -> str:
        return "the supervisor's worker"


def serve(supervisor: Supervisor, source: TextIO, maintenance: Companion) -> None:
    """Call `supervisor.step` again and again, and start and watch maintenance while it has work, until the worker is
    gone; then sign off and stop maintenance. `source`: the standard input, with lines of the worker.
    """
    config = supervisor.config
    lines: queue.SimpleQueue[About] = queue.SimpleQueue()
    worker = LineReader(source, config.worker, lines.put)
    worker.start()
    first_line = {"node": config.node, "incarnation": config.incarnation, "supervisor": processes.identity()}
    supervisor.sign()
    while not worker.ended(supervisor.settings.sweep):
        for _ in range(lines.qsize()):
            supervisor.receive(lines.get())
        supervisor.step()
        if supervisor.needs_maintenance:
            maintenance.look(lambda: first_line)
        else:
            maintenance.rest()
        if supervisor.maintenance_due:
            maintenance.send({"look": 1})
        supervisor.sign()
    sign_off(supervisor)
    maintenance.stop()
    supervisor.status_file.close()


def sign_off(supervisor: Supervisor) -> None:
    """Put the jobs of the worker back and remove the node from Redis. While Redis does not answer, retry for as long as
    a lease lasts; also if no job was running at the last heartbeat, since one may have begun after it.
    """
    until = time.monotonic() + supervisor.settings.lock_ttl
    while True:
        try:
            return supervisor.leave()
        except CoordinatorError as error:
            logger.warning("the supervisor cannot remove its node %s from Redis: %s", supervisor.config.node, error)
            if not isinstance(error, StoreUnavailable | StoreRefused) or time.monotonic() > until:
                return
        time.sleep(supervisor.settings.sweep)


def main() -> None:
    outlive_signals()
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s: %(levelname)s/supervisor] %(message)s")
    config = SupervisorConfig(**json.loads(sys.stdin.readline()))
    store = Store(cast("Settings", WorkersSettings(**config.settings)))
    store.connections.call_it("supervisor", config.node)
    wake = partial(wake_worker, socket.socket(fileno=config.wakes_fd))
    supervisor = Supervisor(store, config, partial(sign_of_life, int(sys.argv[1])), wake)
    command = ["-m", "coordinator.core.maintenance", config.app]
    maintenance = Companion("maintenance", command, supervisor.status_file.folder / "maintenance", _PATIENCE, _FIRST)
    log_server(store, logger)
    WakeReader(supervisor, wake).start()
    serve(supervisor, sys.stdin, maintenance)


if __name__ == "__main__":
    main()
