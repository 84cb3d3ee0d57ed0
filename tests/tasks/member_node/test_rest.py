"""A job goes back to its place where the member of its requests asks to wait."""

from collections.abc import Iterator

import pytest

from coordinator import CoolDown
from coordinator.core.jobs.current import CurrentJob, working
from tasks.member_node.client import AsksToWait
from tasks.member_node.rest import quota_of, resting
from tests.harness.hand_node import Puppet

ASKS = AsksToWait("answers 429", "urn:node:A", "http://a/mn", 429, 0.0)


@pytest.fixture
def job(node: Puppet, request: pytest.FixtureRequest) -> Iterator[None]:
    """From here the test's code is that of a job that uses these quotas."""
    uses = getattr(request, "param", [])
    node.submit("sync/A", job_id="j", settings={"quota_unknown": "open"}, **({"uses": uses} if uses else {}))
    taken = node.must_take()
    mark = working.set(CurrentJob("j", ("sync/A",), taken.token, taken.fence, 1, node.lanes))
    yield
    working.reset(mark)


@pytest.mark.parametrize("job", [[quota_of("A"), "other"]], indirect=True)
def test_a_job_that_uses_the_members_quota_cools_that_down_for_a_second_at_least(job: None) -> None:
    with pytest.raises(CoolDown) as cooled, resting("A"):
        raise ASKS
    assert (cooled.value.seconds, cooled.value.quota) == (1.0, "member/A")


@pytest.mark.parametrize("job", [[], [quota_of("B")]], indirect=True)
def test_any_other_job_fails_by_the_members_answer(job: None) -> None:
    with pytest.raises(AsksToWait), resting("A"):
        raise ASKS


def test_so_does_a_plain_call() -> None:
    with pytest.raises(AsksToWait), resting("A"):
        raise ASKS
