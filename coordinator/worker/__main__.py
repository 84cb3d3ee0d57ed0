"""The warden's process, which a worker spawns beside itself: `python -m coordinator.worker APP FD`.

Its charge comes as the first line of its standard input. To FD it writes a byte each time that its node becomes
registered (1) or is no longer (0).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol, TextIO

from celery import Celery

from coordinator.diagnosis.status import warnings
from coordinator.documents.registry import Documents
from coordinator.errors import SettingsError, StoreUnavailable
from coordinator.execution.parked import Parked
from coordinator.execution.results import Results
from coordinator.fleet.doorbells import BellQueue, Doorbells
from coordinator.fleet.nodes import About
from coordinator.lanes.lanes import Lanes
from coordinator.store.client import Store
from coordinator.worker.unacked import open_unacked
from coordinator.worker.warden import Charge, Warden, WardenPlugin

logger = logging.getLogger(__name__)


class Host(Protocol):
    """The parts of a Coordinator that the warden needs."""

    store: Store
    core: Lanes
    results: Results
    parked: Parked
    doorbells: Doorbells
    documents: Documents
    warden_plugins: list[Callable[[str], WardenPlugin]]


def find(place: str) -> Celery:
    """The app at `module:attribute` or `path.py:attribute`."""
    name, _, attribute = place.rpartition(":")
    if name.endswith(".py"):
        spec = importlib.util.spec_from_file_location("__mp_main__", name)
        if spec is None or spec.loader is None:
            raise SettingsError(f"cannot load {name}")
        module = importlib.util.module_from_spec(spec)
        sys.modules["__mp_main__"] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(name)
    app: Celery = getattr(module, attribute)
    return app


class Ear(threading.Thread):
    """Reads the worker's lines; `ended` once the worker is gone."""

    def __init__(self, source: TextIO) -> None:
        super().__init__(name="warden-ear", daemon=True)
        self._source = source
        self._lines: queue.SimpleQueue[About] = queue.SimpleQueue()
        self.ended = threading.Event()

    def heard(self) -> Iterator[About]:
        with suppress(queue.Empty):
            while True:
                yield self._lines.get_nowait()

    def run(self) -> None:
        try:
            for line in self._source:
                self._lines.put(json.loads(line))
        except (OSError, ValueError):
            logger.exception("warden: cannot hear its worker")
        finally:
            self.ended.set()


def serve(warden: Warden, source: TextIO, voice: int, plugins: list[WardenPlugin]) -> None:
    """Step until the worker is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ear, said = Ear(source), False
    ear.start()
    for plugin in plugins:
        plugin.start()
    while not ear.ended.wait(warden.settings.sweep):
        for line in ear.heard():
            warden.hear(line)
        warden.step()
        if warden.registered != said:
            said = warden.registered
            with suppress(OSError):  # the worker is gone, which the ear hears
                os.write(voice, b"1" if said else b"0")
    for plugin in plugins:
        plugin.stop()
    try:
        warden.leave()
    except StoreUnavailable as error:
        logger.warning("warden of %s could not sign off: %s", warden.charge.node, error)


def warn(store: Store) -> None:
    """Log once why this Redis may lose jobs. A Redis that is away, or does not tell, keeps no warden from its work."""
    try:
        found = warnings(store)
    except Exception as error:
        level = logging.ERROR if isinstance(error, SettingsError) else logging.INFO
        logger.log(level, "cannot ask Redis how it keeps its data: %s", error)
        return
    for warning in found:
        logger.warning("%s", warning)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s: %(levelname)s/warden] %(message)s")
    charge = json.loads(sys.stdin.readline())
    sys.path.insert(0, "")
    app = find(sys.argv[1])
    app.loader.import_default_modules()
    app.finalize()
    host: Host = app.coordinator
    host.documents.node = charge["node"]
    bells = BellQueue(host.doorbells)
    bells.start()
    host.store.ringer = bells.ring
    warden = Warden(host.store, host.core, host.results, host.parked, Charge(**charge))
    warn(host.store)
    plugins: list[WardenPlugin] = [*open_unacked(app, charge["node"], charge["incarnation"])]
    plugins += [make(charge["node"]) for make in host.warden_plugins]
    serve(warden, sys.stdin, int(sys.argv[2]), plugins)
    bells.stop()


if __name__ == "__main__":
    main()
