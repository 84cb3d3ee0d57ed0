"""What the coordinating nodes' synchronization does, in an app of your own: one run at a time for each member node."""

from collections.abc import Iterable

from coordinator import Entry, Submission
from examples.moving.shop import app, coordinator
from examples.moving.work import work

MEMBERS = {"urn:node:KNB": "0 0/3 * * * ? *", "urn:node:ADC": "0 42 3 ? * SUN *"}


@app.task
def synchronize(member: str, pids: list[str] | None = None) -> list[str] | None:
    """The objects of these ids, or all that changed."""
    work(f"{member} {','.join(pids) if pids else 'all'}")
    return pids


@coordinator.schedule_source
def schedules() -> tuple[str, Iterable[Entry]]:
    """Each beat asks for them; a new version makes all beats take the new schedules at once."""
    return "1", [
        Entry(f"sync/{member}", quartz, synchronize.name, [member], key=f"sync/{member}", when_busy="skip")
        for member, quartz in MEMBERS.items()
    ]


def refresh(member: str, pid: str | None = None) -> Submission:
    """Any number of calls during a run make one more run after it, over all objects that they name."""
    signature = synchronize.s(member, pids=[pid] if pid else None)
    return coordinator.collect(f"sync/{member}", signature, how="merge")
