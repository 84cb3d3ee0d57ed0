"""What a plan reads of a job, and changes as an act would."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from coordinator.core.jobs.options import Use
from coordinator.core.jobs.uses import uses_in

FIELDS = (
    "state", "keys", "class", "phase", "ends", "back", "undo", "taken", "stop", "grab", "priority", "seen", "alias",
    "score", "lack", "uses", "apart", "task", "after", "not_before",
)  # fmt: skip


class JobSeen:
    def __init__(self, job_id: str, values: Sequence[str]) -> None:
        self.id, self.fields = job_id, dict(zip(FIELDS, values, strict=True))

    def __getattr__(self, name: str) -> str:
        return self.fields[name]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.fields["keys"].split("\n")) if self.fields["keys"] else ()

    @cached_property
    def uses(self) -> dict[str, Use]:
        return uses_in(self.fields["uses"])

    @property
    def kind(self) -> str:
        """Its task and routing class, as offers of quotas have them (rules/quotas.lua)."""
        return f"{self.fields['task']}\n{self.fields['class']}"

    @property
    def is_first_undo(self) -> bool:
        """True if the job's rollback is ready and has not begun."""
        return self.fields["state"] == "ready" and self.fields["back"].partition(" ")[0] in ("", "0")
