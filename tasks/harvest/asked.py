"""The requests that one sync unites, as texts: `tick`, `increment`, `complete`, `pid X`."""

from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple

TICK = "tick"
"""The request of a schedule: an increment, unless the member is left alone."""
INCREMENT: Literal["increment"] = "increment"
COMPLETE: Literal["complete"] = "complete"
_PID = "pid "


class SyncRequest(NamedTuple):
    """The united requests. `kind`: the pass, if any; a complete pass includes an increment. `pids`: objects to fetch,
    whatever their date. `by_hand`: somebody asked, not only a tick.
    """

    kind: Literal["increment", "complete"] | None = INCREMENT
    pids: tuple[str, ...] = ()
    by_hand: bool = True

    @classmethod
    def of(cls, texts: Iterable[str]) -> "SyncRequest":
        """Read the texts of all submits that one job unites."""
        requests = set(texts)
        kind = COMPLETE if COMPLETE in requests else INCREMENT if requests & {INCREMENT, TICK} else None
        pids = sorted(text.removeprefix(_PID) for text in requests if text.startswith(_PID))
        return cls(kind, tuple(pids), by_hand=requests != {TICK})


CHANGES = SyncRequest()
"""A request for an increment."""


def texts(pids: Collection[str] = (), *, complete: bool = False) -> list[str]:
    """The texts of one submit: an increment, unless it is complete or names pids."""
    kinds = [COMPLETE] if complete else [] if pids else [INCREMENT]
    return [*kinds, *(_PID + pid for pid in pids)]
