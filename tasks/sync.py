"""The Celery tasks that synchronize one member, and that submit a complete sync of every member."""

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial

from pydantic import JsonValue

from coordinator import Locked, StoreUnavailable, Submission, current_job
from tasks import events, instants
from tasks.app import NODELIST_LABEL, app, coordinator
from tasks.documents.document import Document
from tasks.harvest.harvest import harvest_member
from tasks.harvest.outcome import SyncResult, not_synchronizable
from tasks.harvest.silence import silence
from tasks.harvest.sync_request import INCREMENT, SyncRequest, texts
from tasks.member_node.client import MemberNode, MemberNodeError
from tasks.member_node.rest import quota_of, resting
from tasks.schedules import MONTH, SYNC, entries, lane_of, month_before
from tasks.service import service

PAUSE = 0.1

coordinator.schedule_source(entries)


@app.task(name=SYNC, throws=(MemberNodeError,))  # a member's error is one line in the log, without a traceback
def sync_member_node(member_id: str, asked: Sequence[str] = (INCREMENT,)) -> dict[str, JsonValue]:
    """Fetch a member's changed objects into the catalog, and then write the member's harvest dates to the nodelist.

    `asked`: the merged requests of all submits of this job, as texts (tasks/harvest/sync_request.py).

    A job in the member's lane uses the lease of the job. A plain call acquires the lock of the lane; where the member
    is locked, the call returns the outcome `locked`. Raises MemberNodeError where the member fails.
    """
    request, job = SyncRequest.of(asked), current_job()
    if job and lane_of(member_id) in job.keys:
        return _synchronize(member_id, request, job.fence, job.check, job.progress)
    try:
        with coordinator.lock(lane_of(member_id)) as lease:
            return _synchronize(member_id, request, lease.fence, lease.check, lambda done, total: None)
    except Locked as held:
        return {"member": member_id, "outcome": "locked", "reason": str(held)}


@app.task(name=MONTH, throws=(MemberNodeError,))
def sync_month(member_id: str) -> dict[str, JsonValue]:
    """Fetch what the catalog lacks of the objects of one month, the one that ended at the instant of the job's tick.

    Raises MemberNodeError where the member fails, and ValueError in a job that no tick or backfill started.
    """
    job = current_job()
    if job is None or job.instant is None:
        raise ValueError("a month is that of a tick: coordinator members backfill MEMBER SINCE UNTIL --why TEXT")
    request = SyncRequest(None, between=(month_before(job.instant), job.instant))
    return _synchronize(member_id, request, job.fence, job.check, job.progress)


def _synchronize(
    member_id: str,
    request: SyncRequest,
    fence: int,
    check: Callable[[], None],
    progress: Callable[[int, int], None],
) -> dict[str, JsonValue]:
    current = service()
    check_all = partial(_check, check, current.nodelist.document)
    check_all()
    member = current.nodelist.member(member_id)
    if member is None:
        return not_synchronizable(member_id, request, "it is not in the nodelist").model_dump(mode="json")
    silent = None if request.by_hand else silence(current.catalog, member_id)
    if silent is not None and silent.until > instants.now():
        return SyncResult(member=member_id, outcome="left alone", reason=str(silent)).model_dump(mode="json")
    try:
        client = MemberNode(member, current.settings)
    except MemberNodeError as error:
        current.catalog.ran(member_id, fence=fence, now=instants.now(), outcome="failed", error=str(error))
        raise
    with client, resting(member_id):
        outcome = harvest_member(
            member,
            client=client,
            catalog=current.catalog,
            nodelist=current.nodelist,
            fence=fence,
            settings=current.settings,
            request=request,
            progress=progress,
            check=check_all,
        )
    if outcome.stored or outcome.gone:
        events.ask()
    return outcome.model_dump(mode="json")


def _check(lease: Callable[[], None], nodelist: Document) -> None:
    """Raise where the job's lease is lost, or where this node's copy of the nodelist may be out of date.

    `lease`: raises for a lost lease. While Redis is away, it blocks until Redis answers or the lease has run out.
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
    """Submit a sync of a member's changes. `pids`: of these objects only. `complete`: of all objects.

    While a sync of the member runs, further requests are merged into one waiting job, or into several where the
    arguments of one job cannot hold them all. `job_id`: the id of the job; None: a new one.
    """
    signature = sync_member_node.s(member_id, asked=texts(pids, complete=complete))
    return coordinator.collect(
        lane_of(member_id), signature, how="merge", needs=[NODELIST_LABEL], job_id=job_id, uses=quota_of(member_id)
    )


@app.task(name="tasks.sync.complete_passes")
def complete_passes() -> list[str]:
    """Submit a sync of all objects of each member that can be synchronized. Returns the members' ids."""
    names = [member.identifier for member in service().nodelist.members() if member.synchronizable]
    for member_id in names:
        synchronize(member_id, complete=True)
    return names
