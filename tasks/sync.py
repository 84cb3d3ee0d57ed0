"""The tasks: synchronize one member node; start the complete pass of all."""

from collections.abc import Callable, Collection
from typing import Any

from coordinator import Locked, Submission, current_job
from tasks import instants
from tasks.app import app, coordinator
from tasks.harvest import harvest
from tasks.membernode import MemberNode, MemberNodeError
from tasks.members import SYNC, entries, lane_of
from tasks.service import service

coordinator.schedule_source(entries)


@app.task(name=SYNC)
def sync_member_node(node_id: str, pids: list[str] | None = None, complete: bool = False) -> dict[str, Any]:
    """Harvest what changed at a member (just `pids`, or everything from its beginning); last action: the nodelist.

    As a job of the member's lane it has its lease; called otherwise it takes the lock itself, and where the member is
    locked it ends with `{"outcome": "locked"}`. Raises MemberNodeError where the member does not answer as it should.
    """
    job = current_job()
    if job and lane_of(node_id) in job.keys:
        return _synchronize(node_id, pids, complete, job.fence, job.check, job.progress)
    try:
        with coordinator.lock(lane_of(node_id)) as lease:
            return _synchronize(node_id, pids, complete, lease.fence, lease.check, lambda done, total: None)
    except Locked as held:
        return {"member": node_id, "outcome": "locked", "reason": str(held)}


def _synchronize(
    node_id: str,
    pids: list[str] | None,
    complete: bool,
    fence: int,
    check: Callable[[], None],
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    here = service()
    member = here.nodelist.member(node_id)
    if member is None:
        return {"member": node_id, "outcome": "not synchronizable", "reason": "it is not in the nodelist"}
    try:
        client = MemberNode(member, here.settings)
    except MemberNodeError as error:
        here.catalog.ran(node_id, fence=fence, now=instants.now(), outcome="failed", error=str(error))
        raise
    with client:
        outcome = harvest(
            member,
            client=client,
            catalog=here.catalog,
            nodelist=here.nodelist,
            fence=fence,
            settings=here.settings,
            pids=pids,
            complete=complete,
            progress=progress,
            check=check,
        )
    return outcome.model_dump(mode="json")


def synchronize(
    node_id: str, pids: Collection[str] | None = None, *, complete: bool = False, job_id: str | None = None
) -> Submission:
    """Bring a member's sync forward: at most one more waits behind the one at work, for all that was asked for."""
    signature = sync_member_node.s(node_id, complete=True) if complete else sync_member_node.s(node_id)
    return coordinator.submit(lane_of(node_id), signature, when_busy="defer", unite={"pids": pids}, job_id=job_id)


@app.task(name="tasks.sync.complete_passes")
def complete_passes() -> list[str]:
    """Submit the complete pass of each member that can be synchronized; their ids."""
    found = [member.identifier for member in service().nodelist.members() if member.synchronizable]
    for node_id in found:
        synchronize(node_id, complete=True)
    return found
