"""The tasks: synchronize one member; start the complete pass of every member."""

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial

from pydantic import JsonValue

from coordinator import Locked, StoreUnavailable, Submission, current_job
from coordinator.documents.document import Document
from tasks.app import NODELIST_LABEL, app, coordinator
from tasks.harvest.asked import COMPLETE, INCREMENT, Asked, texts
from tasks.harvest.harvest import harvest_member
from tasks.harvest.outcome import Outcome, not_synchronizable
from tasks.harvest.silence import silence
from tasks.member_node import instants
from tasks.member_node.client import MemberNode, MemberNodeError
from tasks.schedules import SYNC, entries, lane_of
from tasks.service import service

PAUSE = 0.1

coordinator.schedule_source(entries)


@app.task(name=SYNC, throws=(MemberNodeError,))  # a member's error is one line in the log, and no traceback
def sync_member_node(
    member_id: str, pids: list[str] | None = None, complete: bool = False, asked: Sequence[str] | None = ()
) -> dict[str, JsonValue]:
    """Harvest a member's changes, and as the last action write its dates to the nodelist.

    `asked`: what several submits asked for together, as `tasks.harvest.asked` reads it. A plain call names `pids`, just
    these objects, or `complete`, everything from the member's beginning.

    A job of the member's lane uses its own lease. A plain call takes the lock itself; where the member is locked, the
    call ends with `{"outcome": "locked"}`. Raises MemberNodeError where the member does not answer as it should.
    """
    kind = None if pids is not None else COMPLETE if complete else INCREMENT
    wanted = Asked(kind, tuple(pids or ())) if asked == () else Asked.of(asked)
    job = current_job()
    if job and lane_of(member_id) in job.keys:
        return _synchronize(member_id, wanted, job.fence, job.check, job.progress)
    try:
        with coordinator.lock(lane_of(member_id)) as lease:
            return _synchronize(member_id, wanted, lease.fence, lease.check, lambda done, total: None)
    except Locked as held:
        return {"member": member_id, "outcome": "locked", "reason": str(held)}


def _synchronize(
    member_id: str,
    asked: Asked,
    fence: int,
    check: Callable[[], None],
    progress: Callable[[int, int], None],
) -> dict[str, JsonValue]:
    here = service()
    checked = partial(_check, check, here.nodelist.document)
    checked()
    member = here.nodelist.member(member_id)
    if member is None:
        return not_synchronizable(member_id, asked, "it is not in the nodelist").model_dump(mode="json")
    silent = None if asked.by_hand else silence(here.catalog, member_id)
    if silent is not None and silent.until > instants.now():
        return Outcome(member=member_id, outcome="left alone", reason=str(silent)).model_dump(mode="json")
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
            asked=asked,
            progress=progress,
            check=checked,
        )
    return outcome.model_dump(mode="json")


def _check(lease: Callable[[], None], nodelist: Document) -> None:
    """Raise where the lease is lost, and where this node's nodelist may be older than elsewhere: it writes nothing.

    While Redis is away, `lease` waits until the lease must be over.
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
    """Ask for a member's sync now: its changes, unless `pids` or a complete pass is asked for.

    Behind a running sync at most one more waits, and it does all that was asked for.
    """
    asked = {"asked": texts(pids, complete=complete)}
    signature = sync_member_node.s(member_id)
    return coordinator.submit(
        lane_of(member_id), signature, when_busy="defer", unite=asked, needs=[NODELIST_LABEL], job_id=job_id
    )


@app.task(name="tasks.sync.complete_passes")
def complete_passes() -> list[str]:
    """Submit the complete pass of each member that can be synchronized. Returns the ids of those members."""
    found = [member.identifier for member in service().nodelist.members() if member.synchronizable]
    for member_id in found:
        synchronize(member_id, complete=True)
    return found
