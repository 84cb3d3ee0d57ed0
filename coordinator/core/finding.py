"""The type of a finding of `doctor`, the command that looks for faults and dangers of an installation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

Level = Literal["error", "warning", "info"]

LEVELS: tuple[Level, ...] = ("error", "warning", "info")
_SHOWN = 10  # findings of each code that `sorted_findings` keeps


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """That an operator knows of a finding: who, why, and until when it does not count. `thing`: as the operator named
    it; "": all of the code.
    """

    by: str
    why: str
    until: datetime
    thing: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of `doctor`. `level`: `error` for a fault, `warning` for a danger, `info` for a fact worth knowing.

    `code`: a stable name such as `slot.dead-owner`, which is also an anchor in `docs/doctor.md`. `thing`: the object of
    the finding, such as `lane sync/a`. `fix`: the command or setting that removes the cause, "" where none can. `act`:
    for programs, the name of the verb behind that command, and `values`, its arguments; None where `fix` is no verb.
    `acknowledged`: by whom, if an operator knows of it and it does not count now.
    """

    level: Level
    code: str
    thing: str
    message: str
    fix: str = ""
    act: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    acknowledged: Acknowledged | None = None

    def __str__(self) -> str:
        return f"{self.level} [{self.code}] ({self.thing}) {self.message}"


def sorted_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings, errors first. Of each code, keep the first ten, and add a finding with the number of others."""
    by_code: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_code[finding.code].append(finding)
    shown = []
    for several in by_code.values():
        shown += several[:_SHOWN]
        if left := several[_SHOWN:]:
            shown.append(Finding(left[0].level, left[0].code, "more", f"and {len(left)} more", left[0].fix))
    return sorted(shown, key=lambda finding: LEVELS.index(finding.level))
