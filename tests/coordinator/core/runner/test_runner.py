"""A runner that breaks off, and what becomes of its job; and one that has nothing more to do."""

from types import SimpleNamespace
from typing import cast

import pytest
from celery import Celery

from coordinator.core.fleet.status_file import StatusFile
from coordinator.core.lanes.client import LaneClient
from coordinator.core.runner import runner as module
from coordinator.core.runner.attempt import Outcome, succeeded
from coordinator.core.runner.claim import Claim
from coordinator.core.runner.outbox import Outbox, Owed
from coordinator.core.runner.runner import Runner, RunnerServices, WorkerContext
from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from coordinator.core.supervisor.runner_watch import RunnerWatch
from tests.coordinator.core.runner.test_outbox import end_of
from tests.harness.hand_node import Puppet
from tests.harness.proxy import Proxy


def two_jobs(node: Puppet) -> str:
    """Ready both; a bell that was rung for them."""
    for name in ("a", "b"):
        node.submit(name, job_id=name)
    return node.rung()[0]


@pytest.mark.parametrize("failure", [RuntimeError("no"), SystemExit()], ids=["fails", "must end"])
def test_a_runner_that_breaks_off_while_redis_is_away_says_so_to_the_supervisor_which_puts_its_job_back(
    node: Puppet, proxy: Proxy, failure: BaseException
) -> None:
    bell, status_file = two_jobs(node), StatusFile.open()
    store = Store(Settings(url=proxy.url(), prefix=node.store.settings.prefix, timeout=1.0))
    app = cast(Celery, SimpleNamespace(main="shop"))
    broken = Runner(
        app,
        WorkerContext("one", LaneClient(store), "a", status_file),
        cast(RunnerServices, SimpleNamespace(tracers=None, events=Breaking(failure, proxy), outbox=None)),
    )
    with pytest.raises(type(failure)):
        broken.run(bell)
    assert list(node.work()) == [broken.id.encode()]
    RunnerWatch(node.lanes, "one", "none", status_file).step(False)
    assert (node.work(), sorted(node.ready())) == ({}, ["a", "b"])
    node.order()
    store.close()
    status_file.close()


def test_a_runner_that_has_nothing_more_to_do_has_its_results_sent(node: Puppet) -> None:
    class Slow(Outbox):
        def send(self, items: list[Owed]) -> None:
            sent.extend(item.end.job.id for item in items)

    sent, status_file = list[str](), StatusFile.open()
    app = Celery("shop", broker="memory://", set_as_current=False)
    outbox, quiet = Slow(app, node.store), SimpleNamespace(started=lambda *_: None, ended=lambda *_: None)
    outbox._pause = 3600.0
    outbox.add(end_of("before"), 1)
    assert outbox.flush(10)
    for name in ("a", "b"):
        node.submit(name, job_id=name, tell=True)
    tracers = SimpleNamespace(attempt=lambda *_: Outcome("succeeded", "null"))
    context = WorkerContext("one", node.lanes, "a", status_file)
    services = cast(RunnerServices, SimpleNamespace(tracers=tracers, events=quiet, outbox=outbox))
    assert Runner(app, context, services).run(node.rung()[0]) == 2
    assert outbox.flush(10)
    assert sent == ["before", "a", "b"]
    status_file.close()
    app.close()


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
    status_file = StatusFile.open()
    context = WorkerContext("one", LaneClient(node.store), "a", status_file)
    events, outbox = SimpleNamespace(ended=lambda *_: None), SimpleNamespace(hurry=lambda: None)
    services = cast(RunnerServices, SimpleNamespace(tracers=None, events=events, outbox=outbox))
    assert Timed(cast(Celery, SimpleNamespace(main="shop")), context, services).run(node.rung()[0]) == 3, "5 seconds"
    node.order()
    status_file.close()
