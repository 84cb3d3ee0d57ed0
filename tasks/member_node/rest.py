"""Lets a member rest that asks for it: a job that makes requests of it goes back to its place, in no slot, and goes on
once the member's quota is open again.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from coordinator import InvalidJob, current_job
from tasks.member_node.client import AsksToWait

LEAST = 1.0
"""Seconds of the shortest rest."""


def quota_of(member_id: str) -> str:
    """The quota of the jobs that make requests of a member. An operator may give it bounds."""
    return f"member/{member_id}"


@contextmanager
def resting(member_id: str) -> Iterator[None]:
    """Cool the member's quota down where the member asks to wait. Raises AsksToWait where no job uses that quota."""
    try:
        yield
    except AsksToWait as asks:
        job = current_job()
        if job is not None:
            with suppress(InvalidJob):  # it does not use the quota
                job.cool_down(max(LEAST, asks.seconds), quota_of(member_id))
        raise
