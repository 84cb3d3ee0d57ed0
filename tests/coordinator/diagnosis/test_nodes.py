"""Why a node does nothing."""

from typing import Any

from coordinator import Coordinator
from tests.harness.hand_node import Puppet


def test_an_idle_node_says_that_nothing_is_ready_for_it_and_one_that_lacks_something_what(
    node: Puppet, coordinator: Coordinator
) -> None:
    why = coordinator.why(node="one")
    assert why.codes == ["node.idle"]
    assert why.sentence == "node one has nothing to do: no job is ready for it"
    node.submit("a", job_id="j", queue="gpu")
    node.submit("b", job_id="k", task="shop.unknown")
    why = coordinator.why(node="one")
    assert why.codes == ["node.lacks", "node.idle"]
    assert {cause.text for cause in why.causes[:2]} == {
        "node one cannot take 1 ready jobs: it is without the queue 'gpu'",
        "node one cannot take 1 ready jobs: it is without the task 'shop.unknown'",
    }
    node.submit("c", job_id="l")
    assert coordinator.why(node="one").codes == ["node.lacks", "node.offered"]
    for job_id in ("j", "k", "l"):
        coordinator.cancel(job_id)


def test_a_node_at_work_leads_to_its_jobs_and_a_full_one_too(coordinator: Coordinator) -> None:
    node = Puppet(coordinator.store)
    node.up(capacity=2)
    node.submit("a", job_id="j")
    first = node.must_take()
    why = coordinator.why(node="one")
    assert why.codes == ["node.busy", "running.job"]
    assert why.causes[0].of == ("job j",)
    node.submit("b", job_id="k")
    second = node.must_take()
    why = coordinator.why(node="one")
    assert why.codes == ["node.full", "running.job"]
    assert why.causes[0].text == "node one has no free slot: 2 jobs, 0 ordinary tasks, 2 slots"
    for taken in (first, second):
        node.finish(taken)


def test_a_drained_node_says_by_whom_and_a_deaf_or_braked_one_so(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.drain("one", why="new disk", by="ann")
    why = coordinator.why(node="one")
    assert why.codes == ["node.drains"]
    assert "node one drains, by ann since 20" in why.sentence
    assert why.causes[0].frees == "coordinator nodes undrain one --why …"
    coordinator.undrain("one")
    node.nodes.beat("one", "a", {"ending": "1"})
    assert coordinator.why(node="one").sentence == "node one drains, since its worker stops: it gets no new jobs"
    coordinator.store._client.zadd(coordinator.store.key("rung", "one"), {"1-1": 2**53})  # rung long ago
    node.nodes.beat("one", "a", {"ending": "0", "braked": "1", "load": "1", "memory": "0.5"})
    why = coordinator.why(node="one")
    assert why.codes == ["node.drains", "node.deaf", "node.braked"]
    assert "load 100%, memory 50%" in str(why)
    node.nodes.beat("one", "a", {"ending": "0", "failure": "OSError(24)"})
    (cause,) = (cause for cause in coordinator.why(node="one").causes if cause.code == "node.deaf")
    assert cause.text.endswith("and is rung last; the last runner there failed: OSError(24)")


def test_a_node_that_is_gone_or_silent_says_so(node: Puppet, coordinator: Coordinator) -> None:
    why = coordinator.why(node="two")
    assert (why.codes, why.sentence) == (["node.gone"], "node two is not alive; living nodes: one")
    assert why.causes[0].frees == "celery -A APP worker -n two"
    client: Any = coordinator.store._client
    client.zadd(coordinator.store.key("alive"), {"one": 1})
    assert coordinator.why(node="one").codes == ["node.silent"]
