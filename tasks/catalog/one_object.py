"""Reads and changes the catalog's rows of one object, for operators."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import delete, select

from tasks.catalog.catalog import Catalog
from tasks.catalog.schema import failures, objects


class ObjectState(NamedTuple):
    """What the catalog has of an object. `fence`: the fence of the run that stored it last; None: it is not stored.

    `reason`, `failed_at`: why and when a run last failed to fetch it; None: no failure is stored.
    """

    fence: int | None
    reason: str | None
    failed_at: datetime | None


def read(catalog: Catalog, member: str, pid: str) -> ObjectState:
    stored = select(objects.c.fence).where(objects.c.member == member, objects.c.pid == pid)
    failed = select(failures.c.reason, failures.c.failed_at).where(failures.c.member == member, failures.c.pid == pid)
    with catalog.engine.connect() as connection:
        fence = connection.execute(stored).scalar()
        failure = connection.execute(failed).first()
    return ObjectState(
        fence, None if failure is None else failure.reason, None if failure is None else failure.failed_at
    )


def forget(catalog: Catalog, member: str, pid: str | None) -> int:
    """Delete the stored failure of an object, so that no run tries to fetch the object again.

    `pid`: None deletes all failures of the member. Returns how many were deleted. A run that is fetching such an object
    now may store a failure again.
    """
    of_member = delete(failures).where(failures.c.member == member)
    with catalog.engine.begin() as connection:
        return connection.execute(of_member if pid is None else of_member.where(failures.c.pid == pid)).rowcount
