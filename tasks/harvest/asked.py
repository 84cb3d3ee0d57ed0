"""Several submits may ask one sync for different things, and their texts unite: `increment`, `complete`, `pid X`."""

from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple

TICK = "tick"
"""An increment, unless the member is left alone: nobody waits for it."""
INCREMENT: Literal["increment"] = "increment"
COMPLETE: Literal["complete"] = "complete"
_PID = "pid "


class Asked(NamedTuple):
    """`kind`: the pass, if any. A complete pass finds all that an increment finds. `pids`: fetched whatever their date.

    `by_hand`: by somebody, and not just by a tick. `unnamed`: more was asked for than a job can name. Then a complete
    pass runs, and the pids are not known any more.
    """

    kind: Literal["increment", "complete"] | None = INCREMENT
    pids: tuple[str, ...] = ()
    by_hand: bool = True
    unnamed: bool = False

    @classmethod
    def of(cls, texts: Iterable[str] | None) -> "Asked":
        """Read the texts of all the submits that one job answers."""
        if texts is None:
            return cls(COMPLETE, unnamed=True)
        given = set(texts)
        kind = COMPLETE if COMPLETE in given else INCREMENT if given & {INCREMENT, TICK} else None
        pids = sorted(text.removeprefix(_PID) for text in given if text.startswith(_PID))
        return cls(kind, tuple(pids), by_hand=given != {TICK})


CHANGES = Asked()
"""Every change, and nothing else."""


def texts(pids: Collection[str] = (), *, complete: bool = False) -> list[str]:
    """The texts of one submit: an increment, unless it names something else."""
    kinds = [COMPLETE] if complete else [] if pids else [INCREMENT]
    return [*kinds, *(_PID + pid for pid in pids)]
