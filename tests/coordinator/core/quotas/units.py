"""What the tests read of a quota."""

from typing import NamedTuple

from coordinator import Coordinator


class Used(NamedTuple):
    """Units in use, their users, and the jobs that wait."""

    units: int
    users: int
    waiting: int


def used(coordinator: Coordinator, name: str) -> Used:
    quota = coordinator._quotas.read(name)
    return Used(quota.used, quota.users, quota.waiting)
