"""Processes that die, pause, or come back late: what their jobs and their words are worth then."""

from typing import Any

import pytest

from tests.harness.hand_node import Puppet


def put_back(node: Puppet, **options: Any) -> Any:
    """A job whose holder went silent past its lease, ready again, not taken yet."""
    node.submit("a", job_id="j", **options)
    late = node.must_take()
    node.lapse("j")
    assert node.sweep() == (["j"], [])
    assert node.lanes.job("j").state == "ready"
    return late


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


@pytest.mark.parametrize("how", ["lost", "handed", "stopped"])
def test_nothing_is_left_of_the_lifetime_of_a_job_that_went_on_elsewhere_and_succeeded(node: Puppet, how: str) -> None:
    """A plain job has no rare fields, and so a short way to its end."""
    node.submit("a", job_id="j", max_lifetime=3600)
    assert node.lose(node.must_take(), how) == "ready"
    node.finish(node.must_take())
    assert node.store.read("ZRANGE", node.store.key("expiry"), 0, -1) == []


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
