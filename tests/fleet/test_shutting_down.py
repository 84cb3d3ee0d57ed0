"""A process that is shutting down refuses to submit, and says so; what still runs in it may."""

import signal
import time

import pytest

from tests.fleet.mishaps import start, tasks_of
from tests.harness.fleet import Fleet
from tests.harness.stopping import stop
from tests.harness.waiting import wait_until


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_that_shuts_down_refuses_while_the_jobs_that_end_in_it_may_still_submit(
    fleet: Fleet, pool: str
) -> None:
    fleet.configure(sweep=0.1)
    worker = start(fleet, pool=pool, fresh=True)
    fleet.coordinator.submit("k", tasks_of(fleet).hands_on.s("job"), job_id="job")
    wait_until(lambda: fleet.stamps("job", "begin"), what=fleet.logs)
    worker.kill(signal.SIGTERM)
    wait_until(lambda: "Warm shutdown" in worker.log.read_text(), what=fleet.logs)
    with fleet.server.client(3) as record:
        record.set(f"{fleet.prefix}.go", 1)
    worker.process.wait(60)
    assert fleet.coordinator.wait("job", 60).result in ("started", "queued")  # queued once the node is known to drain
    assert fleet.coordinator.job("job's").state in ("ready", "succeeded")
    assert [stamp.name for stamp in fleet.stamps(what="refused")] == ["worker"]
    assert fleet.coordinator.counts()["created"] == 2


def test_a_worker_ends_soon_though_it_has_forgotten_what_a_process_of_its_pool_was_about_to_begin(fleet: Fleet) -> None:
    worker = fleet.worker("one", 1)
    (child,) = worker.children()
    stop(child)
    fleet.coordinator.submit("k", fleet.shop.work.s("job"), job_id="job")
    wait_until(lambda: "Task coordinator.run[" in worker.log.read_text(), what=fleet.logs)
    worker.kill(signal.SIGTERM)
    wait_until(lambda: "Warm shutdown" in worker.log.read_text(), what=fleet.logs)
    time.sleep(4)  # Celery says nothing of when it forgets
    child.resume()
    began = time.monotonic()
    assert worker.process.wait(60) == 0
    assert 3 < time.monotonic() - began < 40, "the process waited, and not for long"
    assert fleet.coordinator.job("job").state in ("ready", "succeeded")
