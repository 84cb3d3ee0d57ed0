"""What operators and programs read about the members of the federation, and the commands that change a member."""

from tasks.members import acts, readings
from tasks.members.acts import (
    ActReport,
    accept,
    add,
    approve,
    backfill,
    purge,
    refresh,
    refuse,
    remove,
    reset,
    suspend,
    token,
)
from tasks.members.condition import CODES, Condition, UnknownMember, condition, conditions, conditions_of, why

__all__ = [
    "CODES",
    "ActReport",
    "Condition",
    "UnknownMember",
    "accept",
    "acts",
    "add",
    "approve",
    "backfill",
    "condition",
    "conditions",
    "conditions_of",
    "purge",
    "readings",
    "refresh",
    "refuse",
    "remove",
    "reset",
    "suspend",
    "token",
    "why",
]  # fmt: skip
