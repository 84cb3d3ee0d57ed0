"""The process of a node's errands, which its clock spawns: `python -m coordinator.warden.errands APP FD`.

The first line of its standard input names the node and the clock; each further line wakes the duties. The process
writes a byte to FD each second, and ends with the clock.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from celery import Celery

from coordinator.errors import SettingsError
from coordinator.fleet.nodes import About
from coordinator.store.client import Store
from coordinator.threads import StoppableThread
from coordinator.warden.companion import LineReader, outlive_signals, sign_of_life
from coordinator.warden.errands.duties import Duty, WardenPlugin, report_life
from coordinator.warden.errands.parked import Parked
from coordinator.warden.errands.results import Results
from coordinator.warden.errands.trouble_reports import TroubleReports


class ErrandsCoordinator(Protocol):
    """The parts of a Coordinator that the errands use."""

    store: Store
    _results: Results
    _parked: Parked
    _troubles: TroubleReports
    _node: str
    _warden_plugins: list[Callable[[str], WardenPlugin]]


def find(place: str) -> Celery:
    """Import the app from `module:attribute` or `path.py:attribute`."""
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


def wake(duties: Sequence[Duty], line: About) -> None:
    """Receive a line of the clock: the duties have work."""
    for duty in duties:
        duty.wake()


def main() -> None:
    outlive_signals()
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s: %(levelname)s/errands] %(message)s")
    charge = json.loads(sys.stdin.readline())
    sys.path.insert(0, "")
    gc.disable()  # else the collector looks at all of a large app again and again while it is imported
    app = find(sys.argv[1])
    app.loader.import_default_modules()
    app.finalize()
    gc.freeze()
    gc.enable()
    app.set_default()  # in the thread of a duty, Celery's `current_app` would be an empty app
    coordinator: ErrandsCoordinator = app.coordinator
    coordinator._node = charge["node"]
    duties = [Duty("results", coordinator._results.step), Duty("parked jobs", coordinator._parked.step)]
    troubles = Duty("troubles", coordinator._troubles.step)  # a handler of users may take its time
    clock = LineReader(sys.stdin, charge["clock"], partial(wake, [*duties, troubles]))
    plugins: list[WardenPlugin] = [make(charge["node"]) for make in coordinator._warden_plugins]
    parts: list[WardenPlugin] = [*duties, troubles, *plugins]
    for part in parts:
        part.start()
    clock.start()
    report_life(duties, clock.ended, partial(sign_of_life, int(sys.argv[2])))
    for plugin in plugins:  # they end at the same time
        if isinstance(plugin, StoppableThread):
            plugin.stopping.set()
    for part in reversed(parts):
        part.stop()


if __name__ == "__main__":
    main()
