"""The readings of members: functions behind the commands and JSON routes that show each member's condition."""

from collections.abc import Sequence

from coordinator.extending import AFTER, MOST, NOTHING, reading
from tasks.members import condition as conditions_
from tasks.members.acts import MEMBER
from tasks.members.condition import Condition
from tasks.service import service


@reading(NOTHING, AFTER, MOST, host=None)
def members(after: str = "", most: int = 100) -> Sequence[Condition]:
    """Read the condition of each member in the list, and of each former member whose objects the catalog keeps."""
    return conditions_.conditions(service(), after, most)


@reading(MEMBER, host=None)
def member(member: str) -> Condition:
    """Read the condition of a member: its approval, state, objects, last run and next tick. Raises UnknownMember."""
    current = service()
    return conditions_.condition(member, current.nodelist.listed().get(member), current)
