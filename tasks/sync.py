"""The tasks: synchronize one member; start the complete pass of every member."""

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial

from pydantic import JsonValue

from coordinator import Locked, StoreUnavailable, Submission, current_job
from tasks import events, instants
from tasks.app import NODELIST_LABEL, app, coordinator
from tasks.documents.document import Document
from tasks.harvest.asked import INCREMENT, SyncRequest, texts
from tasks.harvest.harvest import harvest_member
from tasks.harvest.outcome import SyncResult, not_synchronizable
from tasks.harvest.silence import silence
from tasks.member_node.client import MemberNode, MemberNodeError
from tasks.schedules import SYNC, entries, lane_of
from tasks.service import service

PAUSE = 0.1

coordinator.schedule_source(entries)


@app.task(name=SYNC, throws=(MemberNodeError,))  # a member's error is one line in the log, and no traceback
def sync_member_node(member_id: str, asked: Sequence[str] = (INCREMENT,)) -> dict[str, JsonValue]:
    """Harvest a member's changes, and at last write its dates to the nodelist.

    `asked`: the united requests of several submits, as `tasks.harvest.asked` reads them.

    A job of the member's lane uses its own lease. A plain call takes the lock itself; where the member is locked, the
    call ends with `{"outcome": "locked"}`. Raises MemberNodeError where the member does not answer as it should.
    """
    request, job = SyncRequest.of(asked), current_job()
    if job and lane_of(member_id) in job.keys:
        return _synchronize(member_id, request, job.fence, job.check, job.progress)
    try:
        with coordinator.lock(lane_of(member_id)) as lease:
            return _synchronize(member_id, request, lease.fence, lease.check, lambda done, total: None)
    except Locked as held:
        return {"member": member_id, "outcome": "locked", "reason": str(held)}


def _synchronize(
    member_id: str,
    asked: SyncRequest,
    fence: int,
    check: Callable[[], None],
    progress: Callable[[int, int], None],
) -> dict[str, JsonValue]:
    current = service()
    check_all = partial(_check, check, current.nodelist.document)
    check_all()
    member = current.nodelist.member(member_id)
    if member is None:
        return not_synchronizable(member_id, asked, "it is not in the nodelist").model_dump(mode="json")
    silent = None if asked.by_hand else silence(current.catalog, member_id)
    if silent is not None and silent.until > instants.now():
        return SyncResult(member=member_id, outcome="left alone", reason=str(silent)).model_dump(mode="json")
    try:
        client = MemberNode(member, current.settings)
    except MemberNodeError as error:
        current.catalog.ran(member_id, fence=fence, now=instants.now(), outcome="failed", error=str(error))
        raise
    with client:
        outcome = harvest_member(
            member,
            client=client,
            catalog=current.catalog,
            nodelist=current.nodelist,
            fence=fence,
            settings=current.settings,
            asked=asked,
            progress=progress,
            check=check_all,
        )
    if outcome.stored or outcome.gone:
        events.ask()
    return outcome.model_dump(mode="json")


def _check(lease: Callable[[], None], nodelist: Document) -> None:
    """Raise where the lease is lost, or where this node's nodelist may be older than elsewhere.

    While Redis is away, `lease` blocks until the lease must have ended.
    """
    while True:
        lease()
        try:
            return nodelist.check()
        except StoreUnavailable:
            time.sleep(PAUSE)


def synchronize(
    member_id: str, pids: Collection[str] = (), *, complete: bool = False, job_id: str | None = None
) -> Submission:
    """Submit a member's sync: of its changes, unless `pids` or `complete` are given.

    Behind a running sync one job waits and unites all further requests; more jobs wait where one cannot hold them all.
    """
    requests = {"asked": texts(pids, complete=complete)}
    signature = sync_member_node.s(member_id)
    return coordinator.submit(
        lane_of(member_id), signature, when_busy="defer", merge_args=requests, needs=[NODELIST_LABEL], job_id=job_id
    )


@app.task(name="tasks.sync.complete_passes")
def complete_passes() -> list[str]:
    """Submit the complete pass of each member that can be synchronized. Returns the ids of those members."""
    names = [member.identifier for member in service().nodelist.members() if member.synchronizable]
    for member_id in names:
        synchronize(member_id, complete=True)
    return names
