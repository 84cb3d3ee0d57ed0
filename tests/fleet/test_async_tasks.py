"""Tasks that are `async def` run as jobs where something runs them, and say what they miss elsewhere."""

import signal
from typing import Any

from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until

POOL = "celery_aio_pool.pool:AsyncIOPool"


def ended(fleet: Fleet, app: Any, name: str) -> Any:
    job = app.coordinator.submit(f"k/{name}", getattr(app, name).s(name))
    return app.coordinator.wait(job.id, 60)


def test_an_async_task_runs_by_its_base_class_and_fails_with_a_clear_error_where_nothing_runs_it(fleet: Fleet) -> None:
    app = fleet.app("awaiting")
    node = fleet.worker("one", 1, app="awaiting")
    assert ended(fleet, app, "by_base").result == ["by_base", "k/by_base", 1]
    failed = ended(fleet, app, "by_pool")
    assert (failed.state, failed.attempt) == ("failed", 1)
    assert "is an async function, which this worker's Celery does not run" in failed.error["message"]
    assert "never awaited" not in node.log.read_text()


def test_an_async_task_runs_as_a_job_in_a_pool_for_asyncio_and_submits_while_its_worker_ends(fleet: Fleet) -> None:
    app = fleet.app("awaiting")
    node = fleet.worker("one", 1, app="awaiting", pool="custom", fresh=True, CELERY_CUSTOM_WORKER_POOL=POOL)
    assert ended(fleet, app, "by_pool").result == ["by_pool", "k/by_pool", 1]
    job = app.coordinator.submit("k", app.at_the_end.s("later"))
    wait_until(lambda: app.coordinator.job(job.id).state == "running")

    def ends() -> bool:
        """This pool blocks the main thread, where Python may overlook a signal."""
        node.kill(signal.SIGTERM)
        return "Warm shutdown" in node.log.read_text()

    wait_until(ends, 20)
    assert app.coordinator.wait(job.id, 60).state == "succeeded"
