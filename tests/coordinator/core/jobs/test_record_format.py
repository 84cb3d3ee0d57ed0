"""How records are written: of any size, in little memory, and in a format that a node must know."""

import json
from typing import Any

import pytest

from coordinator import Coordinator
from coordinator.core.jobs.record import fields_of_many, read_many, standing
from coordinator.core.store.library import STEPS
from coordinator.errors import StoreRefused
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


def test_a_long_text_is_read_as_it_was_written_wherever_its_last_piece_ends(
    node: Puppet, coordinator: Coordinator
) -> None:
    texts = {f"j{size}": "x" * size + "y" for size in range(300)}
    for job_id, text in texts.items():
        node.submit("a", job_id=job_id, args=(text,))
    [specs] = zip(*fields_of_many(node.store, list(texts), "spec"), strict=True)
    assert [json.loads(spec)["args"] for spec in specs] == [[text] for text in texts.values()]
    assert [job.args for job in read_many(node.store, list(texts))] == [(text,) for text in texts.values()]
    assert [standing(node.store, job_id).spec["args"] for job_id in texts] == [[text] for text in texts.values()]
    taken = node.must_take()
    for text in texts.values():
        end = (taken.id, taken.token, "succeeded", json.dumps(text), 0, "", "", "", "", node.name, taken.runner)
        _, _, given = node.store.step("job_finish", *end, f"next to {taken.token}", node.ttl)
        job = node.lanes.job(taken.id)
        assert (job.args, job.result) == ((text,), text)
        if given:
            taken = taken._replace(id=given[0].decode(), token=f"next to {taken.token}")
            assert json.loads(given[3])["args"] == list(coordinator.job(taken.id).args)
    assert taken.id == list(texts)[-1]


def test_small_records_stay_in_one_block_of_memory_in_a_redis_as_installed(
    node: Puppet, coordinator: Coordinator
) -> None:
    client: Any = node.store._client

    def tables() -> list[str]:
        names = client.scan_iter(node.store.key("job", "*"))
        return [name.decode() for name in names if client.object("encoding", name) != b"listpack"]

    assert client.config_get("hash-max-listpack-value") == {"hash-max-listpack-value": "64"}
    (far := Puppet(node.store, "worker@" + "far." * 6 + "example.org")).up()
    node.nodes.leave(node.name, node.incarnation)
    text = "x" * 100
    coordinator.sorter("orders", 60).add("collected", "s", {"task": "shop.work", "args": [text]})
    for job_id in ("first", "second"):
        node.submit("k", job_id=job_id, args=(text,))
    assert tables() == []
    far.finish(far.must_take(), detail=json.dumps(text))
    assert (node.lanes.job("first").node, tables()) == (far.name, [])
    far.finish(far.must_take())
    node.submit("k", job_id="owed", tell=True)
    far.finish(far.must_take(), detail=json.dumps(text))
    assert (node.lanes.job("owed").result, tables()) == (text, [])


def test_a_record_whose_texts_are_not_in_pieces_is_read_as_well(node: Puppet) -> None:
    node.submit("a", job_id="j")
    spec = json.dumps({"args": ["x" * 150]})
    node.store._client.hset(node.store.key("job", "j"), "spec", spec)
    assert node.lanes.job("j").args == ("x" * 150,)
    assert fields_of_many(node.store, ["j"], "spec") == [[spec]]


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
