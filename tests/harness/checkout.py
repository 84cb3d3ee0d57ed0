"""The checkout stays as it is: no test writes into its top folder."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_CACHES = (".pytest_cache", ".mypy_cache", ".ruff_cache", "__pycache__")


class Checkout:
    """A plugin of pytest: a run of which a file is left at the top fails."""

    def __init__(self) -> None:
        self._before = self._names()

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workeroutput") and not session.exitstatus and self._left():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if left := self._left():
            terminalreporter.section("files that a test left in the checkout", red=True)
            terminalreporter.line(" ".join(left))

    def _names(self) -> set[str]:
        return {path.name for path in ROOT.iterdir() if path.name not in _CACHES}

    def _left(self) -> list[str]:
        return sorted(self._names() - self._before)
