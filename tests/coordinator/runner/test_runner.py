"""A runner that breaks off, and what becomes of its job."""

from types import SimpleNamespace
from typing import cast

import pytest
from celery import Celery

from coordinator.broker.doorbells import Doorbells
from coordinator.fleet.board import Board
from coordinator.lanes.client import LaneClient
from coordinator.runner import runner as module
from coordinator.runner.attempt import Outcome, succeeded
from coordinator.runner.claim import Claim
from coordinator.runner.runner import Place, Runner, Tools
from coordinator.settings import Settings
from coordinator.store.client import Store
from coordinator.warden.clock.runner_watch import RunnerWatch
from tests.harness.hand_node import Puppet
from tests.harness.proxy import Proxy


def two_jobs(node: Puppet) -> str:
    """Ready both; a bell that was rung for them."""
    for name in ("a", "b"):
        node.submit(name, job_id=name)
    return node.rung()[0]


@pytest.mark.parametrize("failure", [RuntimeError("no"), SystemExit()], ids=["fails", "must end"])
def test_a_runner_that_breaks_off_while_redis_is_away_says_so_to_the_clock_which_puts_its_job_back(
    node: Puppet, proxy: Proxy, failure: BaseException
) -> None:
    bell, board = two_jobs(node), Board.open()
    store = Store(Settings(url=proxy.url(), prefix=node.store.settings.prefix, timeout=1.0))
    app = cast(Celery, SimpleNamespace(main="shop"))
    broken = Runner(
        app,
        Place("one", LaneClient(store), cast(Doorbells, None), "a", board),
        cast(Tools, SimpleNamespace(tracers=None, events=Breaking(failure, proxy), outbox=None)),
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


class Timed(Runner):
    """Whose attempts take two seconds each, on a time of the test's own."""

    def _attempt(self, claim: Claim) -> Outcome:
        TIME.now += 2
        return succeeded(claim, None, 0.0, 0.0)


TIME = SimpleNamespace(now=1000.0, monotonic=lambda: TIME.now)


def test_a_runner_goes_on_with_ready_jobs_until_its_slice_is_over(
    node: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        node.submit(f"k{number}")
    monkeypatch.setattr(module, "time", TIME)
    board = Board.open()
    place = Place("one", LaneClient(node.store), cast(Doorbells, None), "a", board)
    events = SimpleNamespace(ended=lambda *_: None)
    tools = cast(Tools, SimpleNamespace(tracers=None, events=events, outbox=None))
    assert Timed(cast(Celery, SimpleNamespace(main="shop")), place, tools).run(node.rung()[0]) == 3, "5 seconds"
    node.order()
    board.close()
