"""The checkout stays as it is: no test writes into its top folder."""

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
_CACHES = (".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "__pycache__")


class Checkout:
    """A plugin of pytest: a run that leaves a file at the top fails, and says after which test it was there."""

    def __init__(self) -> None:
        self._known, self._left = self._names(), dict[str, str]()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        for name in self._names() - self._known:
            self._left.setdefault(name, item.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._left = getattr(node, "workeroutput", {}).get("left", {}) | self._left

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["left"] = self._left
        elif not session.exitstatus and self._left:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._left:
            terminalreporter.section("files that a test left in the checkout", red=True)
            for name, test in sorted(self._left.items()):
                terminalreporter.line(f"{name}, seen after {test}")

    def _names(self) -> set[str]:
        return {path.name for path in ROOT.iterdir() if path.name not in _CACHES}
