"""The program of the maintenance process, which the supervisor starts: `python -m coordinator.core.maintenance APP FD`.

The first line that it reads from standard input is JSON and names the node and the supervisor; each further line wakes
the duties. While no duty hangs, the process writes a byte to the file descriptor FD each second. It ends when the
supervisor has ended.
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

from coordinator.core.fleet.companion import LineReader, outlive_signals, sign_of_life
from coordinator.core.fleet.nodes import About
from coordinator.core.maintenance.duties import Duty, NodePlugin, report_life
from coordinator.core.maintenance.parked import Parked
from coordinator.core.maintenance.results import Results
from coordinator.core.store.client import Store
from coordinator.core.threads import StoppableThread
from coordinator.errors import SettingsError


class AlertRaiser(Protocol):
    """The type of the object that raises alerts. Its class is in the code for operators, which this module must not
    import.
    """

    def step(self, heartbeat: Callable[[], None]) -> None: ...


class MaintainedCoordinator(Protocol):
    """The attributes of a Coordinator that the maintenance process uses."""

    store: Store
    _results: Results
    _parked: Parked
    _alerts: AlertRaiser
    _node: str
    _node_plugins: list[Callable[[str], NodePlugin]]


def import_app(place: str) -> Celery:
    """Import the Celery app. `place`: `module:attribute` or `path.py:attribute`."""
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
    """Wake all duties, since the supervisor has sent a line, which means that there is work. `line` is not read."""
    for duty in duties:
        duty.wake()


def main() -> None:
    """Import the app, start all duties and plugins, and stop them when the supervisor has ended."""
    outlive_signals()
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s: %(levelname)s/maintenance] %(message)s")
    first_line = json.loads(sys.stdin.readline())
    sys.path.insert(0, "")
    gc.disable()  # the garbage collector would search all objects of a large app again and again during its import
    app = import_app(sys.argv[1])
    app.loader.import_default_modules()
    app.finalize()
    gc.freeze()
    gc.enable()
    app.set_default()  # otherwise Celery's `current_app` would be an empty app in the threads of the duties
    coordinator: MaintainedCoordinator = app.coordinator
    coordinator._node = first_line["node"]
    coordinator.store.connections.call_it("maintenance", coordinator._node)
    duties = [Duty("results", coordinator._results.step), Duty("parked jobs", coordinator._parked.step)]
    alerts = Duty("alerts", coordinator._alerts.step)  # not in `duties`: alert handlers of an app may be slow
    supervisor = LineReader(sys.stdin, first_line["supervisor"], partial(wake, [*duties, alerts]))
    plugins: list[NodePlugin] = [make(first_line["node"]) for make in coordinator._node_plugins]
    parts: list[NodePlugin] = [*duties, alerts, *plugins]
    for part in parts:
        part.start()
    supervisor.start()
    report_life(duties, supervisor.ended, partial(sign_of_life, int(sys.argv[2])))
    for plugin in plugins:  # tell all to stop before waiting for each, so that they end at the same time
        if isinstance(plugin, StoppableThread):
            plugin.stopping.set()
    for part in reversed(parts):
        part.stop()


if __name__ == "__main__":
    main()
