"""Requests for a sync as texts: `tick`, `increment`, `complete`, `pid X`. One job may unite many of them."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Literal, NamedTuple

TICK = "tick"
"""The request of a beat: fetch the changes, unless the member has not answered lately (silence.py)."""
INCREMENT: Literal["increment"] = "increment"
COMPLETE: Literal["complete"] = "complete"
_PID = "pid "


class SyncRequest(NamedTuple):
    """The requests that one job has united. `kind`: list the changed objects, or all objects; None: list none.

    `pids`: objects to fetch, whatever their date. `by_hand`: a user, not only the schedule, has requested the sync.
    `between`: list the objects of these dates instead, the second one left out; no text asks for that.
    """

    kind: Literal["increment", "complete"] | None = INCREMENT
    pids: tuple[str, ...] = ()
    by_hand: bool = True
    between: tuple[datetime, datetime] | None = None

    @classmethod
    def of(cls, texts: Iterable[str]) -> "SyncRequest":
        """Unite the texts of all requests of a job into one SyncRequest."""
        requests = set(texts)
        kind = COMPLETE if COMPLETE in requests else INCREMENT if requests & {INCREMENT, TICK} else None
        pids = sorted(text.removeprefix(_PID) for text in requests if text.startswith(_PID))
        return cls(kind, tuple(pids), by_hand=requests != {TICK})


CHANGES = SyncRequest()
"""The request to fetch the objects that have changed since the last sync."""


def texts(pids: Collection[str] = (), *, complete: bool = False) -> list[str]:
    """The texts of one request: `increment`, unless the request names pids or is `complete`."""
    kinds = [COMPLETE] if complete else [] if pids else [INCREMENT]
    return [*kinds, *(_PID + pid for pid in pids)]
