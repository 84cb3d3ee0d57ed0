"""How records are written: small ones as one block of memory, in a format that all living nodes understand."""

import json

import pytest

from coordinator.errors import SettingsError
from tests.harness.hand_node import TASKS, Puppet

SIZES = [0, 10, 64, 65, 100, 128, 129, 400, 500, 2_000, 100_000]


def fields_of(node: Puppet, job_id: str) -> list[str]:
    return sorted(name.decode() for name in node.store.read("HKEYS", node.store.key("job", job_id)))


def spec_in(node: Puppet, size: int) -> str:
    """The id of a job that waits, with so many bytes of arguments."""
    node.submit("a", job_id="first")
    return node.submit("a", job_id="j", args=("x" * size,)).job_id


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


@pytest.mark.parametrize(("size", "encoding"), [(100, b"listpack"), (400, b"listpack"), (2_000, b"hashtable")])
def test_a_small_record_is_one_block_of_memory(node: Puppet, size: int, encoding: bytes) -> None:
    job_id = spec_in(node, size)
    assert node.store.read("OBJECT", "ENCODING", node.store.key("job", job_id)) == encoding
    node.order()


def test_records_are_written_in_the_old_format_until_no_node_needs_it_any_more(node: Puppet) -> None:
    old = Puppet(node.store, "old")
    assert old.up()
    node.store.client.hdel(node.store.key("node", "old"), "format")
    node.store.client.delete(node.store.key("format"))
    assert node.up()
    assert "spec1" not in fields_of(node, spec_in(node, 100))
    assert old.nodes.leave("old", "a")
    node.store.step("sweep", 0, 10**13)
    assert "spec1" in fields_of(node, node.submit("a", job_id="k", args=("x" * 100,)).job_id)
    assert len(node.order()) == 3


def test_a_node_that_cannot_read_the_format_registers_nothing_and_says_why(node: Puppet) -> None:
    node.store.client.set(node.store.key("format"), 3)
    late = Puppet(node.store, "late")
    with pytest.raises(
        SettingsError, match=r"records .* format 3, which this version .* cannot read: upgrade node late"
    ):
        late.nodes.register("late", "a", {"app": "shop", "capacity": 1, "ordinary": 0, "load": 0}, [], TASKS)
    assert [found.name for found in node.nodes.all()] == ["one"]
    assert not node.store.read("EXISTS", node.store.key("tasks", "late"))
