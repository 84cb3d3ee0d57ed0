"""Which codes of `why` and `doctor` the product really made while the tests ran.

A code counts where the product itself made a cause or a finding of it in a test's process, or where a command that a
test ran printed it. A run of all tests fails where one is missing; a text that names a code counts for nothing.
"""

import re
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from coordinator.core.finding import Finding
from coordinator.ops.diagnosis.cause import Cause
from coordinator.ops.diagnosis.codes import CODES

ROOT = Path(__file__).parents[2]
FINDING = re.compile(
    r'Finding\(\s*(?:"(?:error|warning|info)"(?: if [^,]+)?|level|left\[0\]\.level), "([a-z.-]+)"'
)  # fmt: skip
_PRINTED = re.compile(r'(?:\[|"code": ")([a-z]+(?:\.[a-z-]+)?)["\]]')


def findings() -> set[str]:
    """The codes of all findings, as the code has them."""
    files = [*(ROOT / "coordinator").rglob("*.py"), *(ROOT / "tasks").rglob("*.py")]
    return {code for file in files for code in FINDING.findall(file.read_text())}


def causes() -> set[str]:
    """The codes of all causes, those of the service too."""
    from tasks import members  # the service's modules take a second
    from tasks.components import look

    return {*CODES, *members.CODES, *look.CODES}


class Produced:
    """A plugin of pytest. In a run by several processes, each hands its codes to the one that reports."""

    codes: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        self._watch(Cause)
        self._watch(Finding)

    def _watch(self, kind: type[Any]) -> None:
        made = kind.__init__

        def init(one: Any, *args: Any, **fields: Any) -> None:
            made(one, *args, **fields)
            maker: Any = sys._getframe(1)
            while maker.f_globals["__name__"] == "coordinator.ops.diagnosis.codes":  # it makes them for others
                maker = maker.f_back
            if maker.f_globals["__name__"].startswith(("coordinator.", "tasks.")):
                self.codes.add(one.code)

        kind.__init__ = init

    @classmethod
    def printed(cls, text: str) -> None:
        cls.codes.update(_PRINTED.findall(text))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.codes.update(getattr(node, "workeroutput", {}).get("codes", ()))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["codes"] = sorted(self.codes)
        elif not session.exitstatus and self._missing(session.config):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        if missing := self._missing(config):
            terminalreporter.section("codes that nothing produced", red=True)
            terminalreporter.line(" ".join(missing))

    def _missing(self, config: pytest.Config) -> list[str]:
        """None where only a part of the tests ran."""
        option = config.option
        if config.args_source != config.ArgsSource.TESTPATHS or option.keyword or option.markexpr or option.ignore:
            return []
        return sorted((causes() | findings()) - self.codes)
