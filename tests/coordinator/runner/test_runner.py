"""The requests of one runner: each counts once and in its turn, and none takes a job for nobody."""

from types import SimpleNamespace
from typing import cast

import pytest
from celery import Celery

from coordinator.broker.doorbells import Doorbells
from coordinator.fleet.board import Board
from coordinator.lanes.client import Lanes
from coordinator.runner.claim import Claim
from coordinator.runner.runner import Place, Runner, Tools
from coordinator.settings import Settings
from coordinator.store.client import Store
from coordinator.warden.clock.watch import RunnerWatch
from tests.harness.hand_node import Puppet
from tests.harness.proxy import Proxy


def two_jobs(node: Puppet) -> str:
    """Ready both; a bell that was rung for them."""
    for name in ("a", "b"):
        node.submit(name, job_id=name)
    return node.rung()[0]


def test_the_first_request_of_a_runner_that_has_gone_on_takes_nothing(node: Puppet) -> None:
    bell = two_jobs(node)
    first = node.take("token0", "runner", bell)
    assert first
    second = node.finish(first, next_token="token1").next
    assert second
    before = node.work()
    assert node.take("token0", "runner", bell) is None
    assert node.work() == before
    assert node.renew(second) == [True]
    node.finish(second)


def test_the_first_request_of_a_runner_that_is_over_takes_nothing(node: Puppet) -> None:
    bell = two_jobs(node)
    first = node.take("token0", "runner", bell)
    assert first
    node.finish(first)
    assert node.take("token0", "runner", bell) is None
    assert (node.work(), node.ready()) == ({}, ["b"])
    node.order()


def test_a_finish_that_comes_again_after_its_runner_has_gone_on_takes_nothing(node: Puppet) -> None:
    bell = two_jobs(node)
    node.submit("c", job_id="c")
    first = node.take("token0", "runner", bell)
    assert first
    second = node.finish(first, next_token="token1").next
    assert second
    third = node.finish(second, next_token="token2").next
    assert third
    node.submit("d", job_id="d")
    late = node.finish(first, next_token="token1")
    assert (late.verdict, late.next) == ("accepted", None)
    assert list(node.work()) == [b"runner"]
    assert node.work()[b"runner"].startswith(b"token2 ")
    node.finish(third)
    late = node.finish(second, next_token="token2")
    assert (late.verdict, late.next, node.work(), node.ready()) == ("accepted", None, {}, ["d"])
    node.order()


def test_a_runner_whose_job_was_lost_meanwhile_ends_and_a_bell_wakes_another(node: Puppet) -> None:
    bell = two_jobs(node)
    first = node.take("token0", "runner", bell)
    assert first
    node.lose(first)
    again = node.must_take()
    assert again.id in ("a", "b")
    other = node.must_take()
    assert node.finish(first, next_token="token1").next is None
    for taken in (again, other):
        node.finish(taken)
    node.order()


@pytest.mark.parametrize("failure", [RuntimeError("no"), SystemExit()], ids=["fails", "must end"])
def test_a_runner_that_breaks_off_while_redis_is_away_says_so_to_the_clock_which_puts_its_job_back(
    node: Puppet, proxy: Proxy, failure: BaseException
) -> None:
    bell, board = two_jobs(node), Board.open()
    store = Store(Settings(url=proxy.url(), prefix=node.store.settings.prefix, timeout=1.0))
    app = cast(Celery, SimpleNamespace(main="shop"))
    broken = Runner(
        app,
        Place("one", Lanes(store), cast(Doorbells, None), "a", board),
        cast(Tools, SimpleNamespace(tracers=None, events=Breaking(failure, proxy), outbox=None, tracked={})),
    )
    with pytest.raises(type(failure)):
        broken.run(bell)
    assert list(node.work()) == [broken.id.encode()]
    RunnerWatch(node.lanes, "one", "none", board).step(False)
    assert (node.work(), sorted(node.ready())) == ({}, ["a", "b"])
    node.order()
    store.close()
    board.close()


class Breaking:
    """The events of a runner that fails between its job's taking and its body."""

    def __init__(self, error: BaseException, proxy: Proxy) -> None:
        self._error, self._proxy = error, proxy

    def started(self, claim: Claim) -> None:
        self._proxy.cut()
        raise self._error
