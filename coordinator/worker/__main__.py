"""The process of a node's errands, which its clock spawns: `python -m coordinator.worker APP FD`.

The first line of its standard input says for whom; each further one names a doorbell to ring. At its end the clock is
gone, and so the errands end. To FD it writes a byte twice a second.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable
from typing import Protocol, TextIO

from celery import Celery

from coordinator.broker.doorbells import BellQueue, Doorbells
from coordinator.documents.registry import Documents
from coordinator.errors import SettingsError
from coordinator.execution.parked import Parked
from coordinator.execution.results import Results
from coordinator.store.client import Store
from coordinator.threads import StoppableThread
from coordinator.worker.errands import Duty, WardenPlugin, attend
from coordinator.worker.forsaken import open_forsaken
from coordinator.worker.unacked import open_unacked

logger = logging.getLogger(__name__)


class Host(Protocol):
    """The parts of a Coordinator that the errands need."""

    store: Store
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
    """Hands on which doorbells to ring, and that there is something to do; `ended` once the clock is gone."""

    def __init__(self, source: TextIO, ring: Callable[[str, str], None], wake: Callable[[], None]) -> None:
        super().__init__(name="errands-ear", daemon=True)
        self._source = source
        self._ring, self._wake = ring, wake
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            for line in self._source:
                told = json.loads(line)
                if "ring" in told:
                    self._ring(*told["ring"])
                else:
                    self._wake()
        except (OSError, ValueError):
            logger.exception("the errands cannot hear their clock")
        finally:
            self.ended.set()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s: %(levelname)s/errands] %(message)s")
    charge = json.loads(sys.stdin.readline())
    sys.path.insert(0, "")
    app = find(sys.argv[1])
    app.loader.import_default_modules()
    app.finalize()
    app.set_default()  # each duty has a thread, in which Celery's `current_app` would be an empty one
    host: Host = app.coordinator
    host.documents.node = charge["node"]
    bells = BellQueue(host.doorbells)
    host.store.ringer = bells.ring
    duties = [Duty("results", host.results.step), Duty("parked jobs", host.parked.step)]

    def wake() -> None:
        for duty in duties:
            duty.wake()

    ear = Ear(sys.stdin, bells.ring, wake)
    plugins: list[WardenPlugin] = [make(charge["node"]) for make in host.warden_plugins]
    rescue = [*open_unacked(app, charge["node"], charge["incarnation"]), *open_forsaken(app, charge["node"])]
    parts: list[WardenPlugin] = [bells, *duties, *rescue, *plugins]
    for part in parts:
        part.start()
    ear.start()
    attend(duties, ear.ended.wait, int(sys.argv[2]))
    for plugin in plugins:  # they end at the same time
        if isinstance(plugin, StoppableThread):
            plugin.stopping.set()
    for part in reversed(parts):
        part.stop()


if __name__ == "__main__":
    main()
