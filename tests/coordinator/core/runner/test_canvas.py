"""After the end of a job, Celery's own code goes on: with the request that a message of the job would have had."""

from typing import Any

import celery
import pytest
from celery import Celery, chain, chord
from celery.app.task import Context
from celery.result import GroupResult

from coordinator import Coordinator
from coordinator.core.runner import canvas
from tests.harness.hand_node import Puppet, playing
from tests.harness.installation import Installation

pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex")  # by Celery itself


@pytest.fixture
def node(keyed: Any) -> Puppet:
    return playing(keyed)


def finish(coordinator: Coordinator, node: Puppet, job_id: str) -> None:
    """The job succeeds, and maintenance sends its end."""
    claim = node.must_take()
    assert claim.id == job_id
    node.finish(claim)
    store = coordinator.store
    store._client.zadd(store.key("unsent", "keyed"), {job_id: 0})
    assert coordinator._results.step() == 1


def message_of(coordinator: Coordinator, job_id: str) -> Any:
    return coordinator._core.spec(job_id)["message"]


def test_several_links_are_one_group_among_the_children_and_know_their_root(keyed: Any, node: Puppet) -> None:
    call = keyed.add.apply_async((1, 2), link=[keyed.add.s(1, lane="b"), keyed.add.s(2, lane="c")])
    finish(keyed.coordinator, node, call.id)
    (links,) = call.children
    assert isinstance(links, GroupResult)
    for link in links.results:
        message = message_of(keyed.coordinator, link.id)
        assert (message["root_id"], message["parent_id"]) == (call.id, call.id)
    assert call._get_task_meta()["worker"] == "one"


@pytest.mark.parametrize("links", [1, 2])
def test_a_link_of_an_end_that_is_told_twice_is_one_job(keyed: Any, node: Puppet, links: int) -> None:
    call = keyed.add.apply_async((1, 2), link=[keyed.add.s(1, lane="b")] * links)
    finish(keyed.coordinator, node, call.id)
    store = keyed.coordinator.store
    store._client.zadd(store.key("unsent", "keyed"), {call.id: 0})
    assert keyed.coordinator._results.step() == 1
    assert keyed.coordinator.lane("lane/b").length == links


def test_the_id_of_a_link_is_of_its_job_its_end_and_its_place(keyed: Any) -> None:
    link, ids = keyed.add.s(1), set()
    for job_id, fence, number in (("a", 1, 0), ("b", 1, 0), ("a", 2, 0), ("a", 1, 1), ("a", 1, 0)):
        request = Context(id=job_id, coordinator_fence=fence)
        ids.add(canvas._named(link, request, number).options["task_id"])
    assert len(ids) == 4


def test_the_next_step_is_a_child(keyed: Any, node: Puppet) -> None:
    last = chain(keyed.add.s(1, 2), keyed.add.s(3, lane="b")).apply_async()
    finish(keyed.coordinator, node, last.parent.id)
    assert [child.id for child in last.parent.children] == [last.id]


@pytest.mark.skipif(celery.VERSION[:2] < (5, 7), reason="before Celery 5.7, a chord that fails in a chain has no body")
def test_a_chord_that_cannot_be_called_as_the_next_step_fails_with_its_body(keyed: Any, node: Puppet) -> None:
    header = [keyed.both.s(lane) for lane in ("x", "\n")]
    last = chain(keyed.add.s(1, 2), chord(header, keyed.tell.s())).apply_async()
    finish(keyed.coordinator, node, last.parent.parent.id)
    with pytest.raises(ValueError, match="control characters"):
        last.get(timeout=60)


def test_a_link_that_cannot_be_called_holds_up_no_other(keyed: Any, node: Puppet) -> None:
    call = keyed.add.apply_async((1, 2), link=[keyed.both.si("\n", 1), keyed.add.s(1, lane="b")])
    finish(keyed.coordinator, node, call.id)
    assert call.get(timeout=60) == "detail"


def test_the_canvas_of_a_task_that_this_process_lacks_goes_on(keyed: Any, node: Puppet) -> None:
    call = keyed.add.apply_async((1, 2), link=keyed.once.si("linked"))
    keyed.app.tasks.unregister("keyed.add")
    finish(keyed.coordinator, node, call.id)
    assert keyed.coordinator.lane("lane/usual").length == 1
    assert call.get(timeout=60) == "detail"


def test_a_revoke_calls_no_error_links_of_the_calls_that_the_job_stands_for(
    apps: Installation, keyed: Any, node: Puppet
) -> None:
    job = keyed.late.delay("x")
    mine = keyed.late.apply_async(("x",), task_id="mine", link_error=keyed.note.si("error"))
    keyed.coordinator.cancel(job.id)
    store = keyed.coordinator.store
    store._client.zadd(store.key("unsent", "keyed"), {job.id: 0})
    assert keyed.coordinator._results.step() == 1
    assert (job.state, mine.state, apps.stamps()) == ("REVOKED", "REVOKED", [])


def test_a_canvas_goes_on_where_no_results_are_kept(apps: Installation, node: Puppet) -> None:
    app = Celery("keyed", broker=apps.server.url(1), set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": f"{apps.prefix}."}
    coordinator = Coordinator(app, url=apps.server.url(0), prefix=apps.prefix, timeout=10)
    task = app.task(nothing, name="keyed.add", shared=False, coordinate={"key": "k"})
    call = task.apply_async(link=task.si())
    finish(coordinator, node, call.id)
    assert coordinator.lane("k").length == 1
    coordinator.store.close()
    app.close()


def nothing() -> None:
    """Do nothing."""
