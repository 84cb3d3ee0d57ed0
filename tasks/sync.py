"""The tasks: synchronize one member; start the complete pass of every member."""

import time
from collections.abc import Callable, Collection

from pydantic import JsonValue

from coordinator import Locked, StoreUnavailable, Submission, current_job
from tasks.app import NODELIST_LABEL, app, coordinator
from tasks.harvest.harvest import harvest_member
from tasks.member_node import instants
from tasks.member_node.client import MemberNode, MemberNodeError
from tasks.schedules import SYNC, entries, lane_of
from tasks.service import service

PAUSE = 0.1

coordinator.schedule_source(entries)


@app.task(name=SYNC)
def sync_member_node(member_id: str, pids: list[str] | None = None, complete: bool = False) -> dict[str, JsonValue]:
    """Harvest a member's changes, and as the last action write its dates to the nodelist.

    `pids`: just these objects. `complete`: everything from the member's beginning.

    A job of the member's lane uses its own lease. A plain call takes the lock itself; where the member is locked, the
    call ends with `{"outcome": "locked"}`. Raises MemberNodeError where the member does not answer as it should.
    """
    job = current_job()
    if job and lane_of(member_id) in job.keys:
        return _synchronize(member_id, pids, complete, job.fence, job.check, job.progress)
    try:
        with coordinator.lock(lane_of(member_id)) as lease:
            return _synchronize(member_id, pids, complete, lease.fence, lease.check, lambda done, total: None)
    except Locked as held:
        return {"member": member_id, "outcome": "locked", "reason": str(held)}


def _synchronize(
    member_id: str,
    pids: list[str] | None,
    complete: bool,
    fence: int,
    check: Callable[[], None],
    progress: Callable[[int, int], None],
) -> dict[str, JsonValue]:
    here = service()

    def checked() -> None:
        """A node that is out of the nodelist's replica set writes nothing: its list may be older than elsewhere.

        While Redis is away, `check` waits until the lease must be over.
        """
        while True:
            check()
            try:
                return here.nodelist.document.check()
            except StoreUnavailable:
                time.sleep(PAUSE)

    checked()
    member = here.nodelist.member(member_id)
    if member is None:
        return {"member": member_id, "outcome": "not synchronizable", "reason": "it is not in the nodelist"}
    try:
        client = MemberNode(member, here.settings)
    except MemberNodeError as error:
        here.catalog.ran(member_id, fence=fence, now=instants.now(), outcome="failed", error=str(error))
        raise
    with client:
        outcome = harvest_member(
            member,
            client=client,
            catalog=here.catalog,
            nodelist=here.nodelist,
            fence=fence,
            settings=here.settings,
            pids=pids,
            complete=complete,
            progress=progress,
            check=checked,
        )
    return outcome.model_dump(mode="json")


def synchronize(
    member_id: str, pids: Collection[str] | None = None, *, complete: bool = False, job_id: str | None = None
) -> Submission:
    """Ask for a member's sync now. Behind a running sync at most one more waits, and it does all that was asked for."""
    signature = sync_member_node.s(member_id, complete=True) if complete else sync_member_node.s(member_id)
    return coordinator.submit(
        lane_of(member_id), signature, when_busy="defer", unite={"pids": pids}, needs=[NODELIST_LABEL], job_id=job_id
    )


@app.task(name="tasks.sync.complete_passes")
def complete_passes() -> list[str]:
    """Submit the complete pass of each member that can be synchronized. Returns the ids of those members."""
    found = [member.identifier for member in service().nodelist.members() if member.synchronizable]
    for member_id in found:
        synchronize(member_id, complete=True)
    return found
