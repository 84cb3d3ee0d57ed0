"""The verbs for findings of `doctor`: an operator acknowledges a known one, so that it alarms nobody for a while.

An acknowledgement holds for the findings of a code, or for the one about a thing, until an instant. It does not end
when the finding goes: one that comes and goes would alarm at each return.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Unpack

from coordinator.core.author import Acting
from coordinator.core.client.client import Client
from coordinator.core.jobs.validation import checks_arguments
from coordinator.core.store.times import moment
from coordinator.core.verbs import FINDING, Answer, Given, Option, verb

if TYPE_CHECKING:
    from coordinator.core.finding import Finding

ABOUT = Option(
    "thing", "The thing of the finding, such as 'node n1'. Without it: all of the code.", argument=True,
    metavar="[THING]", label="Thing",
)  # fmt: skip
UNTIL = Option(
    "until", "When it ends by itself: a span such as 2h or 3d, seconds, or an instant, at most 30 days ahead.",
    default="8h",
)  # fmt: skip


def _named(given: Given) -> str:
    return f"{given['code']} ({given['thing']})" if given["thing"] else str(given["code"])


def _acknowledged(_: object, given: Given, until: datetime) -> Answer:
    return {**given, "until": until.isoformat()}, f"{_named(given)} is acknowledged until {moment(until)}"


def _forgotten(_: object, given: Given, was: bool) -> Answer:
    said = "counts again" if was else "was not acknowledged"
    return {**given, "unacknowledged": was}, f"{_named(given)} {said}"


@checks_arguments
class FindingVerbs(Client):
    if TYPE_CHECKING:

        def doctor(self) -> list[Finding]: ...

    @verb(FINDING, ABOUT, UNTIL, tell=_acknowledged, title="Acknowledge", blocks=True)
    def ack(
        self, code: str, thing: str | None = None, *, until: datetime | float | str = "8h", **acting: Unpack[Acting]
    ) -> datetime:
        """Acknowledge a known finding of `doctor`: until an instant it stands apart, with who and why, and `doctor` and
        `status` do not count it.

        `thing`: only the finding about this thing, such as `node n1`; None: all of the code. `until`: a span such as
        `2h`, seconds, or an instant, at most 30 days ahead. Another call replaces it. It does not end when the finding
        goes. Returns the instant. Raises InvalidJob where `doctor` finds no such thing now.
        """
        from coordinator.core.author import act_of, author_of
        from coordinator.ops.verbs.acknowledged import acknowledge

        who, act = author_of(acting.get("by")).name, act_of(**acting)
        return acknowledge(self._core.store, code, thing, until, who, act, self.doctor)

    @verb(FINDING, ABOUT, tell=_forgotten, title="Do not acknowledge")
    def unack(self, code: str, thing: str | None = None, **acting: Unpack[Acting]) -> bool:
        """End the acknowledgement of a finding, or of all of a code, before its time: it counts again.

        `code`, `thing`: as they were acknowledged. Returns False where it was not acknowledged.
        """
        from coordinator.core.author import act_of
        from coordinator.ops.verbs.acknowledged import forget

        return forget(self._core.store, code, thing, act_of(**acting))
