"""An installation of the tests, as this process sees it: its apps and what their tasks did. It starts no node."""

import importlib
import os
import sys
from functools import cached_property
from typing import Any, NamedTuple, Self

import pytest
from celery import _state
from kombu import pools

from coordinator import Coordinator
from tests.harness.redis import RedisServer


class Stamp(NamedTuple):
    """A line of what the tasks did; `at` is Redis's clock in µs."""

    name: str
    what: str
    at: int
    attempt: int
    fence: int


class Installation:
    """`coordinator` is the app's in this process; `settings` reach this process, and every node that a fleet starts."""

    apps = "tests.harness.apps"  # the package of their modules

    def __init__(self, server: RedisServer, prefix: str, **settings: Any) -> None:
        self.server = server
        self.prefix = prefix
        self.environ = {
            "TEST_BROKER": server.url(1),
            "TEST_BACKEND": server.url(2),
            "TEST_LOG": server.url(3),
            "TEST_PREFIX": prefix,
            "COORDINATOR_URL": server.url(0),
            "COORDINATOR_PREFIX": prefix,
        }
        self.configure(**settings)
        self._apps: dict[str, Any] = {}
        self._further: dict[str, Any] = {}
        self._before: dict[str, str | None] = {}

    def configure(self, **settings: Any) -> None:
        self.environ |= {f"COORDINATOR_{name.upper()}": str(value) for name, value in settings.items()}

    @property
    def shop(self) -> Any:
        return self.app("shop")

    @property
    def depot(self) -> Any:
        return self.app("depot")

    def app(self, name: str) -> Any:
        """The module <apps>.<name>, imported anew with this fleet's environment."""
        if name not in self._apps:
            for variable in self.environ:
                self._before.setdefault(variable, os.environ.get(variable))
            os.environ.update(self.environ)
            sys.modules.pop(f"{self.apps}.{name}", None)
            # Celery shares each app's tasks with all later apps of the process: not with the next test's.
            shared = set(_state._on_app_finalizers)
            self._apps[name] = importlib.import_module(f"{self.apps}.{name}")
            _state._on_app_finalizers = shared
            with pytest.MonkeyPatch.context() as patch:  # patient with a loaded machine, unlike its nodes
                patch.setenv("COORDINATOR_TIMEOUT", self.environ.get("COORDINATOR_TIMEOUT", "10"))
                assert self._apps[name].coordinator.settings
        return self._apps[name]

    def tasks(self, module: str) -> Any:
        """A module with further tasks of the app `shop`, which nodes load with `-I`: imported with this one's app."""
        app = self.shop.app
        if module not in self._further:
            sys.modules.pop(module, None)
            self._further[module] = importlib.import_module(module)
            assert self._further[module].app is app
        return self._further[module]

    @property
    def coordinator(self) -> Coordinator:
        return self.shop.coordinator  # type: ignore[no-any-return]

    def stamps(self, name: str | None = None, what: str | None = None) -> list[Stamp]:
        """What the tasks did, in Redis's order."""
        lines = [line.rsplit(" ", 4) for line in self._notes.lrange(f"{self.prefix}.log", 0, -1)]
        found = [Stamp(line[0], line[1], int(line[2]), int(line[3]), int(line[4])) for line in lines]
        return [stamp for stamp in found if name in (None, stamp.name) and what in (None, stamp.what)]

    def go(self, name: str) -> None:
        """The task `held` or `guarded` of this name may end."""
        self._notes.rpush(f"{self.prefix}.go.{name}", 1)

    @cached_property
    def _notes(self) -> Any:
        """Tests look often, and a client of its own for each look costs more than the look."""
        return self.server.client(3)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._notes.close()
        for module in self._apps.values():
            module.coordinator.store.close()
            if hasattr(module.app.backend, "client"):
                module.app.backend.client.close()
            module.app.close()
        pools.reset()  # open sockets would be found by whichever test runs when they are collected
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
