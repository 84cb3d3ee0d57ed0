"""One object of a member, by its pid: what an operator asks for."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import delete, select

from tasks.catalog.catalog import Catalog
from tasks.catalog.schema import failures, objects


class Found(NamedTuple):
    """`fence`: that of the run that stored the object last. `reason`, `failed_at`: of its failure, where it has one."""

    fence: int | None
    reason: str | None
    failed_at: datetime | None


def read(catalog: Catalog, member: str, pid: str) -> Found:
    stored = select(objects.c.fence).where(objects.c.member == member, objects.c.pid == pid)
    failed = select(failures.c.reason, failures.c.failed_at).where(failures.c.member == member, failures.c.pid == pid)
    with catalog.engine.connect() as connection:
        fence = connection.execute(stored).scalar()
        failure = connection.execute(failed).first()
    return Found(fence, None if failure is None else failure.reason, None if failure is None else failure.failed_at)


def forget(catalog: Catalog, member: str, pid: str) -> bool:
    """Take the object from the failures, so that no later run tries it. False where it is none of them.

    A run that is trying it now may note it again.
    """
    with catalog.engine.begin() as connection:
        done = connection.execute(delete(failures).where(failures.c.member == member, failures.c.pid == pid))
    return done.rowcount > 0
