"""A worker outlives its broker: killed and started again under running and waiting work, jobs and ordinary tasks."""

import signal

import pytest

from tests.harness.fleet import Fleet, Worker
from tests.harness.redis import RedisServer
from tests.harness.standing import Node
from tests.harness.stopping import stop
from tests.harness.waiting import wait_for_count, wait_until

NODE = Node("shop", 2, settings={"sweep": 0.2})


@pytest.fixture(scope="module")
def broker(own_redis: RedisServer) -> RedisServer:
    """A server of its own: the coordinator's Redis and the backend stay up."""
    return own_redis


@pytest.fixture(scope="module")
def environ(broker: RedisServer) -> dict[str, str]:
    return {"TEST_BROKER": broker.url(1), "TEST_PREFETCH": "1"}


def unacked(fleet: Fleet, broker: RedisServer) -> int:
    with broker.client(1) as client:
        return int(client.hlen(f"{fleet.prefix}.unacked"))


def redeliver(fleet: Fleet) -> None:
    """What Celery does once the visibility timeout of unacknowledged messages is over."""
    with fleet.shop.app.connection_for_write(transport_options={"visibility_timeout": 0}) as connection:
        connection.default_channel.qos.restore_visible(interval=1)


def kill(broker: RedisServer, worker: Worker, noticed_by: str) -> None:
    """kill -9; the worker, stopped meanwhile, finds its connections of that type closed first."""
    stop(worker.process)
    with broker.client() as client:
        assert client.client_kill_filter(_type=noticed_by)
    broker.kill()
    worker.kill(signal.SIGCONT)


@pytest.mark.parametrize("noticed_by", ["pubsub", "normal"])
def test_a_worker_survives_its_broker_and_everything_ends_once(
    fleet: Fleet, broker: RedisServer, noticed_by: str
) -> None:
    (worker,) = fleet.workers
    processes = {child.pid for child in worker.children()}
    work, submit = fleet.shop.work, fleet.coordinator.submit
    held = fleet.shop.held
    ran = [submit("ledger", held.s("running job")).id, submit("ledger", work.s("waiting job")).id]
    wait_until(lambda: fleet.stamps("running job"), what=fleet.logs)
    held.delay("running task")
    for name in ("first waiting task", "second waiting task"):
        work.delay(name)
    wait_until(lambda: fleet.stamps("running task") and unacked(fleet, broker) == 2, what=fleet.logs)
    fleet.coordinator.store.read("RPUSH", fleet.wakes_of(worker.name), "one too many")
    wait_until(lambda: "one too many" in worker.log.read_text(), what=fleet.logs)

    kill(broker, worker, noticed_by)
    ran.append(submit("other", work.s("job without a broker")).id)
    wait_until(lambda: "Connection refused" in fleet.logs(), what=fleet.logs)
    broker.start()
    wait_until(lambda: "Connected to" in fleet.logs(), what=fleet.logs)
    redeliver(fleet)
    work.delay("later task")
    for name in ("running job", "running task"):
        fleet.go(name)

    for job_id in ran:
        job = fleet.coordinator.wait(job_id, 60)
        assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0)
    tasks = ["running task", "first waiting task", "second waiting task", "later task"]
    jobs = ["running job", "waiting job", "job without a broker"]
    wait_for_count(lambda: len(fleet.stamps(what="end")), len(tasks + jobs), 60, fleet.logs)
    for what in ("begin", "end"):
        assert sorted(stamp.name for stamp in fleet.stamps(what=what)) == sorted(tasks + jobs)
    wait_until(lambda: unacked(fleet, broker) == 0, what=fleet.logs)
    assert worker.process.poll() is None
    assert {child.pid for child in worker.children()} == processes


def test_a_worker_whose_processes_were_killed_at_once_survives_its_broker(fleet: Fleet, broker: RedisServer) -> None:
    (worker,) = fleet.workers
    for _ in range(16):
        stop(worker.process)
        killed = worker.children()
        for process in killed:
            process.kill()
        worker.kill(signal.SIGCONT)  # it sees both deaths in one look
        wait_until(lambda: len(set(worker.children()) - set(killed)) == 2, what=fleet.logs)  # noqa: B023
    kill(broker, worker, "normal")
    broker.start()
    fleet.shop.work.delay("task")
    wait_until(lambda: fleet.stamps("task", "end"), what=fleet.logs)
    assert worker.process.poll() is None


def test_a_broker_that_is_full_ends_no_worker(fleet: Fleet, broker: RedisServer) -> None:
    """It loses what it hands out, since kombu cannot note that. Jobs run, and all else once there is room again."""
    (worker,) = fleet.workers
    stop(worker.process)
    fleet.shop.work.delay("lost")
    with broker.client() as client:
        client.config_set("maxmemory", 1)
        worker.kill(signal.SIGCONT)
        wait_until(lambda: "Connection to broker lost" in fleet.logs(), what=fleet.logs)
        job = fleet.coordinator.submit("ledger", fleet.shop.work.s("job")).id
        client.config_set("maxmemory", 0)
    fleet.shop.work.delay("later")
    wait_until(lambda: fleet.stamps("later", "end"), what=fleet.logs)
    assert fleet.coordinator.wait(job, 60).state == "succeeded"
    assert worker.process.poll() is None
