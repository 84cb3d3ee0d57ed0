"""How records are written: of any size, and in a format that a node must know."""

import json

import pytest

from coordinator.errors import StoreRefused
from coordinator.store.library import STEPS
from tests.harness.functions import steps_of
from tests.harness.hand_node import Puppet

SIZES = [0, 100_000]


def spec_in(node: Puppet, size: int) -> str:
    """The id of a job that waits, with so many bytes of arguments."""
    node.submit("a", job_id="first")
    return node.submit("a", job_id="j", args=("x" * size,)).id


@pytest.mark.parametrize("size", SIZES)
def test_a_record_is_read_and_run_as_it_was_submitted_whatever_its_size(node: Puppet, size: int) -> None:
    job_id = spec_in(node, size)
    assert node.lanes.job(job_id).args == ("x" * size,)
    assert node.lanes.spec(job_id)["args"] == ["x" * size]
    first = node.must_take()
    ending = (first.id, first.token, "succeeded", "1", 0, "", "", "", "", node.name, first.runner, "t" * 32, node.ttl)
    for _ in range(2):  # asked again, Redis gives the same job
        given = node.store.step("job_finish", *ending)[2]
        assert json.loads(given[3])["args"] == ["x" * size]
    long = json.dumps({"type": "ValueError", "message": "no", "traceback": "line\n" * 2000})
    ending = (job_id, "t" * 32, "failed", long, 0, "", "", "", "", node.name, first.runner, "", node.ttl)
    assert node.store.step("job_finish", *ending)[0] == b"accepted"
    job = node.lanes.job(job_id)
    assert (job.state, job.args, job.error) == ("failed", ("x" * size,), json.loads(long))


def test_each_step_of_a_version_that_cannot_read_the_format_is_refused_and_writes_nothing(node: Puppet) -> None:
    waits = spec_in(node, 0)
    node.store._client.set(node.store.key("format"), 3)
    before = {key: node.store._client.dump(key) for key in node.store._client.keys(node.store.key("*"))}
    for name in (step.name for file in STEPS for step in steps_of(file)):
        with pytest.raises(StoreRefused, match=r"records of format 3, which .* cannot read: upgrade this process"):
            node.store.step(name)
    assert before == {key: node.store._client.dump(key) for key in node.store._client.keys(node.store.key("*"))}
    node.store._client.set(node.store.key("format"), 1)
    assert node.lanes.job(waits).state == "waiting"
