"""Members: the condition of each, why it is so, and what operators do with them."""

from tasks.members.acts import ActReport, accept, add, approve, purge, refresh, refuse, remove, reset, suspend, token
from tasks.members.condition import CODES, Condition, UnknownMember, condition, conditions, conditions_of, why

__all__ = [
    "CODES", "ActReport", "Condition", "UnknownMember", "accept", "add", "approve", "condition", "conditions",
    "conditions_of", "purge", "refresh", "refuse", "remove", "reset", "suspend", "token", "why",
]  # fmt: skip
