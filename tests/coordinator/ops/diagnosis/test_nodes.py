"""Why a node does nothing."""

from typing import Any, cast

from coordinator import Coordinator
from tests.harness.hand_node import Puppet


def test_an_idle_node_says_that_nothing_is_ready_for_it_and_one_that_lacks_something_what(
    node: Puppet, coordinator: Coordinator
) -> None:
    why = coordinator.why(node="one")
    assert why.codes == ["node.idle"]
    assert why.sentence == "one is well: 0 of 4 slots busy, and no job is ready for it."
    node.submit("a", job_id="j", queue="gpu")
    node.submit("b", job_id="k", task="shop.unknown")
    why = coordinator.why(node="one")
    assert why.codes == ["node.lacks", "node.idle"]
    assert {cause.text for cause in why.causes[:2]} == {
        "one is not for 1 ready job: it is without the queue gpu",
        "one is not for 1 ready job: it is without the task shop.unknown",
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
    assert why.causes[0].text == "one is full: 2 of 2 slots busy"
    for taken in (first, second):
        node.finish(taken)


def test_a_drained_node_says_by_whom_and_a_deaf_or_overloaded_one_so(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.drain("one", why="new disk", by="ann")
    why = coordinator.why(node="one")
    assert why.codes == ["node.drains"]
    assert "one drains by ann since 20" in why.sentence
    assert why.causes[0].frees == "coordinator nodes undrain one --why …"
    coordinator.undrain("one")
    node.nodes.beat("one", "a", {"ending": "1"})
    assert coordinator.why(node="one").sentence == ("one drains, since its worker stops; it gets no new jobs.")
    coordinator.store._client.zadd(coordinator.store.key("rung", "one"), {"1-1": 2**53})  # rung long ago
    node.nodes.beat("one", "a", {"ending": "0", "braked": "1", "load": "1", "memory": "0.5"})
    why = coordinator.why(node="one")
    assert why.codes == ["node.drains", "node.deaf", "node.overloaded"]
    assert "load 100%, memory 50%" in str(why)
    node.nodes.beat("one", "a", {"ending": "0", "failure": "OSError(24)"})
    (cause,) = (cause for cause in coordinator.why(node="one").causes if cause.code == "node.deaf")
    assert cause.text.endswith("and is woken last; the last runner there failed: OSError(24)")


def test_a_node_that_is_gone_or_silent_says_so(node: Puppet, coordinator: Coordinator) -> None:
    why = coordinator.why(node="two")
    assert (why.codes, why.sentence) == (["node.gone"], "two is not alive; living nodes: one.")
    assert why.causes[0].frees == "celery -A APP worker -n two"
    client: Any = coordinator.store._client
    client.zadd(coordinator.store.key("alive"), {"one": 1})
    assert coordinator.why(node="one").codes == ["node.silent"]


def test_a_node_that_was_cut_off_is_known_for_an_hour_and_who_has_its_jobs(
    node: Puppet, coordinator: Coordinator
) -> None:
    cut_off, client = Puppet(coordinator.store, "two"), cast(Any, coordinator.store._client)
    cut_off.up()
    for job_id in ("j", "k"):
        node.submit(job_id, job_id=job_id)
        cut_off.must_take()
    client.zadd(coordinator.store.key("alive"), {"two": 1})
    assert node.sweep()[1] == ["two"]
    why = coordinator.why(node="two")
    assert why.codes[0] == "node.lost"
    assert "it held 2 jobs: j running, k running; living nodes: one" in why.causes[0].text
    for job_id in ("j", "k"):
        client.zadd(coordinator.store.key("leases"), {job_id: 1})
    node.sweep()
    taken = node.must_take()
    assert [str(job) for job in coordinator.lost_nodes()[0].jobs] == ["j running on one", "k ready"]
    node.finish(taken)
    node.finish(node.must_take())
    (lost,) = coordinator.lost_nodes()
    assert str(lost) == "it held 2 jobs: j succeeded on one, k succeeded on one"
    assert not lost.back
    cut_off.up(incarnation="b")
    assert coordinator.lost_nodes()[0].back
    name = coordinator.store.key("lost-nodes")
    at, _, about = client.hget(name, "two").decode().partition(" ")
    client.hset(name, mapping={"two": f"{int(at) - 3_600_001} {about}", "three": "damaged"})
    assert coordinator.lost_nodes() == []
    cut_off.nodes.leave("two", "b", held=[])
    node.nodes.leave("one", "a", held=[])
    assert set(client.hkeys(name)) == {b"two", b"one"}, "what is older than an hour, or damaged, goes at the next loss"


def test_a_node_that_left_in_order_or_was_only_silent_is_not_lost(node: Puppet, coordinator: Coordinator) -> None:
    two = Puppet(coordinator.store, "two")
    two.up()
    coordinator.store._client.zadd(coordinator.store.key("alive"), {"two": 1})
    node.sweep()
    assert [lost.name for lost in coordinator.lost_nodes()] == ["two"]
    two.up()
    assert coordinator.lost_nodes() == []
    two.nodes.leave("two", "a")
    assert (coordinator.lost_nodes(), coordinator.why(node="two").codes) == ([], ["node.gone"])
