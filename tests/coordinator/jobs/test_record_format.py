"""How records are written: of any size, and in a format that a node must know."""

import json

import pytest

from coordinator.errors import SettingsError
from tests.harness.hand_node import TASKS, Puppet

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


def test_a_node_that_cannot_read_the_format_registers_nothing_and_says_why(node: Puppet) -> None:
    node.store._client.set(node.store.key("format"), 3)
    late = Puppet(node.store, "late")
    with pytest.raises(
        SettingsError, match=r"records .* format 3, which this version .* cannot read: upgrade node late"
    ):
        late.nodes.register("late", "a", {"app": "shop", "capacity": 1, "ordinary": 0, "load": 0}, [], TASKS)
    assert [found.name for found in node.nodes.all()] == ["one"]
    assert not node.store.read("EXISTS", node.store.key("tasks", "late"))
