"""What `doctor` says of one fault or danger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault (`error`), a danger (`warning`) or a fact to know (`info`).

    `code`: stable, `slot.dead-owner`; `docs/doctor.md` has an anchor for each. `thing`: what it is about, `lane
    sync/a`. `fix`: the command or the setting that mends it, "" where only people can.
    """

    level: Level
    code: str
    thing: str
    message: str
    fix: str = ""
