"""What `doctor` says of one fault or danger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Level = Literal["error", "warning", "info"]

LEVELS: tuple[Level, ...] = ("error", "warning", "info")
_SHOWN = 10  # findings of one code


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault (`error`), a danger (`warning`) or a fact to know (`info`).

    `code`: stable, `slot.dead-owner`; `docs/doctor.md` has an anchor for each. `thing`: what it is about, `lane
    sync/a`. `fix`: the command or the setting that mends it, "" where only people can; `act`: its name and `values`,
    where it is an act, for programs.
    """

    level: Level
    code: str
    thing: str
    message: str
    fix: str = ""
    act: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.level} [{self.code}] ({self.thing}) {self.message}"


def sorted_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Errors first; the first ten of each code, and how many more there are."""
    by_code: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_code[finding.code].append(finding)
    shown = []
    for several in by_code.values():
        shown += several[:_SHOWN]
        if left := several[_SHOWN:]:
            shown.append(Finding(left[0].level, left[0].code, "more", f"and {len(left)} more", left[0].fix))
    return sorted(shown, key=lambda finding: LEVELS.index(finding.level))
