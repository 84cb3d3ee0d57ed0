"""Tasks that are `async def` run on nodes, as jobs and as ordinary tasks."""

import signal
from typing import Any

import pytest

from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until

POOL = "celery_aio_pool.pool:AsyncIOPool"


def ended(app: Any, task: str, *args: Any, key: str = "", **options: Any) -> Any:
    job = app.coordinator.submit(key or f"k/{task}", getattr(app, task).s(*args), **options)
    return app.coordinator.wait(job.id, 60)


def test_async_tasks_do_what_other_tasks_do(fleet: Fleet) -> None:
    app = fleet.app("awaiting")
    node = fleet.worker("one", 2, app="awaiting")
    assert ended(app, "by_itself", "job").result == ["job", "k/by_itself", 1]
    assert app.by_itself.delay("plain").get(timeout=60) == ["plain", None, None]
    assert ended(app, "by_base", "base").result == ["base", "k/by_base", 1]
    assert ended(app, "reports").result == ["k/reports", 1, True, ["other", "other", 1]]
    assert ended(app, "clashes", max_attempts=1).result == 2
    assert ended(app, "again").result == 2
    assert ended(app, "hands_on", "sub").result == [["sub", None, None]]
    app.coordinator.quota("api", concurrency=1)
    cooled = app.coordinator.submit("k", app.cools.s(), uses="api")
    wait_until(lambda: app.coordinator.quota_status("api").quota.cools_for > 0)
    app.coordinator.cancel(cooled.id)

    soft = ended(app, "waits", 60, soft_time_limit=1)
    assert soft.result == "put away in MainThread"
    assert app.waits.apply_async((60,), soft_time_limit=2).get(timeout=60) == "put away in MainThread"
    hard = ended(app, "waits", 60, time_limit=0.3, max_attempts=1)
    assert (hard.state, hard.error["type"]) == ("failed", "TimedOut")
    cancelled = app.coordinator.submit("k/stop", app.waits.s(60))
    wait_until(lambda: app.coordinator.job(cancelled.id).state == "running")
    app.coordinator.cancel(cancelled.id)
    assert ended(app, "waits", 0, key="k/stop").result == "waited"
    assert "still ran; they are cancelled" not in node.log.read_text()
    assert "never awaited" not in node.log.read_text()


def test_a_pool_of_threads_has_a_loop_for_each_and_one_of_greenlets_says_what_to_do(fleet: Fleet) -> None:
    app = fleet.app("awaiting")
    node = fleet.worker("one", 2, app="awaiting", pool="threads")
    busy = [app.coordinator.submit(f"k/{name}", app.waits.s(1)) for name in range(2)]
    loops = {ended(app, "loop", key=f"k/{name}").result for name in range(2)}
    assert [app.coordinator.wait(job.id, 60).result for job in busy] == ["waited"] * 2
    assert 1 <= len(loops) <= 2
    assert app.loop.delay().get(timeout=60)
    node.end()
    fleet.worker("two", 2, app="awaiting", pool="gevent")
    failed = ended(app, "by_itself", "job")
    assert (failed.state, failed.attempt) == ("failed", 1)
    assert "start a worker with -P prefork, threads or solo" in failed.error["message"]
    with pytest.raises(Exception, match="-P prefork, threads or solo"):
        app.by_itself.delay("plain").get(timeout=60)


def test_a_pool_for_asyncio_runs_them_still_and_submits_while_its_worker_ends(fleet: Fleet) -> None:
    app = fleet.app("awaiting")
    node = fleet.worker("one", 1, app="awaiting", pool="custom", fresh=True, CELERY_CUSTOM_WORKER_POOL=POOL)
    assert ended(app, "by_itself", "pool").result == ["pool", "k/by_itself", 1]
    job = app.coordinator.submit("k", app.at_the_end.s("later"))
    wait_until(lambda: app.coordinator.job(job.id).state == "running")

    def ends() -> bool:
        """This pool blocks the main thread, where Python may overlook a signal."""
        node.kill(signal.SIGTERM)
        return "Warm shutdown" in node.log.read_text()

    wait_until(ends)
    assert app.coordinator.wait(job.id, 60).state == "succeeded"
