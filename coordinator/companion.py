"""The process that a worker spawns beside itself: `python -m coordinator.companion APP FD`; its charge comes as a line.

To FD it says whether its node is registered, a byte each time that changes: 1 or 0.
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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TextIO

from coordinator import overview
from coordinator.errors import SettingsError, StoreUnavailable
from coordinator.extension import Coordinator
from coordinator.hands import open_hands
from coordinator.store import Store
from coordinator.warden import Charge, Companion, Warden

logger = logging.getLogger(__name__)


def find(place: str) -> Any:
    """The object at `module:attribute` or `path.py:attribute`."""
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
    return getattr(module, attribute)


class Ear(threading.Thread):
    """Reads the worker's lines; `ended` once the worker is gone."""

    def __init__(self, source: TextIO) -> None:
        super().__init__(name="warden-ear", daemon=True)
        self._source = source
        self._lines: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self.ended = threading.Event()

    def heard(self) -> Iterator[Mapping[str, Any]]:
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


def serve(warden: Warden, source: TextIO, voice: int, companions: list[Companion]) -> None:
    """Until the worker is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ear, said = Ear(source), False
    ear.start()
    for companion in companions:
        companion.start()
    while not ear.ended.wait(warden.settings.sweep):
        for line in ear.heard():
            warden.hear(line)
        warden.step()
        if warden.registered != said:
            said = warden.registered
            with suppress(OSError):  # the worker is gone, which the ear hears
                os.write(voice, b"1" if said else b"0")
    for companion in companions:
        companion.stop()
    try:
        warden.leave()
    except StoreUnavailable as error:
        logger.warning("warden of %s could not sign off: %s", warden.charge.node, error)


def warn(store: Store) -> None:
    """Say once why this Redis may lose work. One that is away, or does not tell, keeps no warden from its work."""
    try:
        found = overview.warnings(store)
    except Exception as error:
        logger.info("cannot ask Redis how it keeps its data: %s", error)
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
    coordinator: Coordinator = app.coordinator
    coordinator.documents.node = charge["node"]
    parts = (coordinator.store, coordinator.core, coordinator.notices, coordinator.parked, coordinator.doorbells)
    warden = Warden(*parts, Charge(**charge))
    warn(coordinator.store)
    companions: list[Companion] = [*open_hands(app, charge["node"], charge["incarnation"])]
    companions += [make(charge["node"]) for make in coordinator.companions]
    serve(warden, sys.stdin, int(sys.argv[2]), companions)


if __name__ == "__main__":
    main()
