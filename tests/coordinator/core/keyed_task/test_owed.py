"""A process that dies between the end of a keyed job and its result: maintenance goes on with the canvas, once."""

from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError

from coordinator.core.worker.remote_control import jobs_among
from tests.harness.hand_node import Puppet, playing

pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex")  # by Celery itself


@pytest.fixture
def node(keyed: Any) -> Puppet:
    return playing(keyed)


def tell(keyed: Any, *job_ids: str) -> int:
    """Maintenance looks, as it does some seconds after the end of these jobs."""
    store = keyed.coordinator.store
    store._client.zadd(store.key("unsent", "keyed"), dict.fromkeys(job_ids, 0))
    sent: int = keyed.coordinator._results.step()
    return sent


def test_maintenance_goes_on_with_a_chain_and_no_step_is_begun_twice(keyed: Any, node: Puppet) -> None:
    last = chain(keyed.add.s(1, 2), keyed.add.s(3, lane="b")).apply_async()
    first = node.must_take()
    assert first.id == last.parent.id
    assert node.finish(first).verdict == "accepted"
    for _ in range(3):  # it died before it noted that it had told
        assert tell(keyed, first.id) == 1
    assert last.parent.get(timeout=60) == "detail"
    second = node.must_take()
    assert (second.id, keyed.coordinator.job(second.id).args) == (last.id, ("detail", 3))
    assert node.take() is None
    node.finish(second)
    assert keyed.coordinator.counts()["created"] == 2


def test_a_job_owes_its_end_to_those_that_were_skipped_for_it_also_while_it_ran(keyed: Any, node: Puppet) -> None:
    keyed.once.apply_async(("first",), ignore_result=True)
    first = node.must_take()
    alone = keyed.once.delay("alone")
    mine = keyed.once.apply_async(("second",), task_id="mine")
    linked = keyed.once.apply_async(("third",), link=keyed.add.s(1, "linked"))
    assert (alone.id, mine.id) == (first.id, "mine")
    assert linked.id not in (first.id, "mine")
    store = keyed.coordinator.store
    assert store._client.object("encoding", store.key("job", "mine")) == b"listpack", "its spec lies in pieces, too"
    for _ in range(2):  # the answer was lost
        assert node.finish(first).verdict == "shared"
    assert tell(keyed, first.id) == 1
    assert (mine.get(timeout=60), linked.get(timeout=60)) == ("detail", "detail")
    assert node.must_take().id == linked.children[0].id
    assert keyed.coordinator.lane("lane/linked").length == 1


def test_a_call_under_the_id_of_a_skipped_one_starts_nothing(keyed: Any, node: Puppet) -> None:
    keyed.once.delay("first")
    first = node.must_take()
    for _ in range(2):
        keyed.once.apply_async(("second",), task_id="mine")
    store = keyed.coordinator.store
    assert store._client.lrange(store.key("aliases", first.id), 0, -1) == [b"mine"]
    node.finish(first)
    tell(keyed, first.id)
    keyed.once.apply_async(("second",), task_id="mine")
    assert node.take() is None


def test_of_several_lanes_the_busy_one_says_which_job_a_call_is_skipped_for(keyed: Any, node: Puppet) -> None:
    busy = keyed.add.delay(1, 2, lane="busy")
    assert node.must_take().id == busy.id
    assert keyed.both_once.delay("roomy", "busy").id == busy.id


def test_a_call_that_was_revoked_before_it_came_ends_as_such_and_is_told(keyed: Any, node: Puppet) -> None:
    known = keyed.add.delay(1, 2)
    assert jobs_among(keyed.app, [known.id, "mine", "skipped"]) == [known.id]
    mine = keyed.add.apply_async((3, 4), task_id="mine", link_error=keyed.note.si("never"))
    ended = keyed.coordinator.job("mine")
    assert (ended.state, ended.error) == ("cancelled", {"type": "Cancelled", "message": "revoked", "by": "celery"})
    assert keyed.coordinator.lane("lane/usual").jobs == (known.id,)
    assert jobs_among(keyed.app, ["mine"]) == ["mine"]
    assert tell(keyed, "mine") == 1
    with pytest.raises(TaskRevokedError, match="revoked"):
        mine.get(timeout=60)
    counts = keyed.coordinator.counts()
    assert (counts["created"], counts["cancelled"], counts["ready"], counts["scheduled"]) == (2, 1, 1, 0)


def test_of_two_lanes_a_call_waits_in_one_and_is_skipped_for_the_other(keyed: Any, node: Puppet) -> None:
    keyed.add.delay(1, 2, lane="pool")
    first, second = keyed.pooled.delay("a"), keyed.pooled.delay("b")
    assert (keyed.pooled.delay("a").id, keyed.pooled.delay("b").id) == (first.id, second.id)
    assert [keyed.coordinator.lane(key).length for key in ("lane/pool", "item/a", "item/b")] == [3, 1, 1]


def test_an_option_of_a_canvas_sets_the_tasks_that_celery_sets_with_any_option(keyed: Any, node: Puppet) -> None:
    one = keyed.add.s(1, 2)
    asked = [chain(one, one, one), group(one, one), chord([one, one], keyed.sum_up.s())]
    for canvas in asked:
        canvas.set(coordinate=False, shadow="x").apply_async()
    with keyed.app.connection_for_write() as connection, connection.SimpleQueue("celery") as queue:
        messages = [queue.get(timeout=60) for _ in range(5)]
    for message in messages:
        assert (message.headers["coordinate"], message.headers["shadow"]) == (False, "x")
    later = [step["options"] for step in messages[0].payload[2]["chain"]]
    body = messages[4].payload[2]["chord"]["options"]
    found = [(options.get("coordinate"), options.get("shadow")) for options in (*later, body)]
    assert found == [(None, None), (None, None), (False, "x")]
    assert keyed.coordinator.counts()["created"] == 0
