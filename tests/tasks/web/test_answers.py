"""One member that breaks the rules of DataONE's schema does not spoil the list for those who read it strictly."""

import pytest

from tasks.member_node.member import Member, MemberSchedule
from tasks.web.answers import valid
from tests.tasks.conftest import RIVER, river_with

TIMES = RIVER.schedule or MemberSchedule(sec="0", min="0", hour="0", mday="1", mon="*", wday="?", year="*")


@pytest.mark.parametrize(
    "schedule", [None, TIMES.model_copy(update={"sec": "0/10"}), TIMES.model_copy(update={"min": "1;2"})]
)
def test_dates_and_a_schedule_that_the_schema_cannot_say_are_left_out(schedule: MemberSchedule | None) -> None:
    said = valid(river_with(schedule=schedule))
    assert (said.schedule, said.last_harvested, said.last_complete_harvest) == (None, None, None)
    assert said.to_xml().find("synchronization") is None


@pytest.mark.parametrize(
    ("member", "contacts"),
    [
        (river_with(contact_subjects=()), RIVER.subjects),
        (river_with(contact_subjects=(), subjects=()), (RIVER.identifier,)),
        (RIVER, RIVER.contact_subjects),
    ],
)
def test_somebody_can_always_be_asked(member: Member, contacts: tuple[str, ...]) -> None:
    assert valid(member) == member.model_copy(update={"contact_subjects": contacts})
