"""Processes that die, pause, or come back late: what their jobs and their words are worth then."""

from typing import Any

from coordinator import Coordinator
from coordinator.jobs.record import Job
from tests.harness.hand_node import Puppet


def put_back(node: Puppet, **options: Any) -> Any:
    """A job whose holder went silent past its lease, ready again, not taken yet."""
    node.submit("a", job_id="j", **options)
    late = node.must_take()
    node.lapse("j")
    assert node.sweep() == (["j"], [])
    assert node.lanes.job("j").state == "ready"
    return late


def test_a_lost_job_is_taken_again_in_its_place_with_a_greater_fence(node: Puppet) -> None:
    ids = [node.submit("a").id for _ in range(3)]
    first = node.must_take()
    assert node.lose(first) == "ready"
    again = node.must_take()
    assert (again.id, again.attempt, again.losses) == (ids[0], 2, 1)
    assert again.fence > first.fence
    node.finish(again)
    assert node.order() == ids[1:]


def test_a_holder_that_was_succeeded_may_neither_finish_nor_renew(node: Puppet) -> None:
    late = put_back(node)
    current = node.must_take()
    assert node.finish(late)[:2] == ("lost", "")
    assert node.renew(late) == [False]
    assert node.store.step("job_progress", "j", late.token, "9/9") == 0
    assert node.lose(late) == ""
    assert node.locked_by("a") == current.token
    job = node.lanes.job("j")
    assert (job.state, job.attempt, job.progress) == ("running", 2, None)
    assert node.lanes.holds("j", current.token)
    assert not node.lanes.holds("j", late.token)
    node.finish(current)


def test_a_holder_whose_lease_lapsed_may_renew_while_nobody_succeeded_it(node: Puppet) -> None:
    late = put_back(node, time_limit=60)
    assert node.renew(late) == [True]
    assert node.take() is None
    assert (node.locked_by("a"), list(node.work())) == (late.token, [late.runner.encode()])
    job = node.lanes.job("j")
    assert (job.state, job.losses, job.attempt) == ("running", 0, 1)
    node.finish(late)


def test_a_condemned_attempt_may_not_finish_and_its_runner_gets_nothing_more(node: Puppet) -> None:
    node.submit("a", job_id="j")
    node.submit("b", job_id="other")
    taken = node.must_take()
    assert node.store.step("runner_condemn", "one", taken.runner, taken.token, "j") == 1
    assert not node.lanes.holds("j", taken.token)
    assert node.finish(taken, next_token="next") == ("condemned", "", None)
    assert node.lose(taken, "timed_out") == "failed"
    assert node.finish(taken)[:2] == ("condemned", "")
    assert node.order() == ["other"]


def test_a_node_that_says_nothing_is_forgotten_and_its_work_goes_elsewhere(coordinator: Coordinator) -> None:
    dead, other = Puppet(coordinator.store, "dead"), Puppet(coordinator.store, "other")
    dead.up()
    other.up()
    dead.submit("a", job_id="j")
    taken = dead.must_take()
    dead.lapse("j")
    coordinator.store._client.zadd(coordinator.store.key("alive"), {"dead": 1})
    assert other.sweep() == (["j"], ["dead"])
    assert [one.name for one in other.nodes.all()] == ["other"]
    assert dead.take() is None
    again = other.must_take()
    assert (again.id, again.attempt) == ("j", 2)
    other.finish(again)
    assert dead.finish(taken).verdict == "lost"


def test_a_node_that_was_only_silent_keeps_what_its_processes_hold(node: Puppet) -> None:
    node.submit("a", job_id="j")
    taken = node.must_take()
    node.store._client.zadd(node.store.key("alive"), {"one": 1})
    assert node.sweep() == ([], ["one"])
    assert node.nodes.beat("one", "a", {}) is None
    node.up()
    assert list(node.work()) == [taken.runner.encode()]
    assert node.store._client.ttl(node.store.key("work", "one")) == -1
    assert node.renew(taken) == [True]
    node.finish(taken)


def test_the_end_of_a_job_is_owed_until_it_is_told(node: Puppet) -> None:
    def states() -> list[Job]:
        return [node.lanes.job(one.decode()) for one, _ in node.store.step("notices_take", "shop", 10)]

    node.submit("a", job_id="j", tell=True)
    node.finish(node.must_take())
    assert states() == [], "its runner tells it first"
    node.store._client.zadd(node.store.key("unsent", "shop"), {"j": 1})
    assert [job.id for job in states()] == ["j"]
    node.store._client.zadd(node.store.key("unsent", "shop"), {"j": 1, "long-gone": 1})
    assert [job.id for job in states()] == ["j"], "what is not kept any more is not told"
    node.store.step("notices_sent", "shop", "j")
    assert node.store._client.exists(node.store.key("unsent", "shop")) == 0
