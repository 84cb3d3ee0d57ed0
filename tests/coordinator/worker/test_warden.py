"""The warden's looks, taken one by one on a real Redis."""

import logging
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from coordinator import Coordinator
from coordinator.fleet import processes
from coordinator.local.redis import free_port
from coordinator.worker.warden import Charge, Warden
from tests.harness.hand_node import TASKS, Puppet
from tests.harness.redis import RedisServer


def warden_of(server: RedisServer, prefix: str, incarnation: str = "a", **settings: Any) -> Warden:
    app = Celery("shop", broker=server.url(1), set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": prefix + "."}
    client = Coordinator(app, url=server.url(0), prefix=prefix, sweep=0.05, **settings)
    about = {"app": "shop", "capacity": 4, "ordinary": 0, "load": 0}
    charge = Charge("one", incarnation, processes.identity(), about, ["app shop", "queue celery"], list(TASKS))
    return Warden(client.store, client.core, client.results, client.parked, charge)


@pytest.fixture
def warden(redis_server: RedisServer, prefix: str) -> Warden:
    return warden_of(redis_server, prefix)


@pytest.fixture
def node(warden: Warden) -> Puppet:
    return Puppet(warden.store)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process in the place of a pool process."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def runner_in(process: subprocess.Popen[bytes]) -> str:
    return f"{process.pid}.{processes.birth(process.pid)}.0"


def test_what_the_worker_told_while_redis_was_away_is_said_later(own_redis: RedisServer) -> None:
    warden = warden_of(own_redis, "own", timeout=0.3)
    warden.step()
    own_redis.kill()
    warden.hear({"capacity": 7, "ordinary": 2})
    warden.step()
    own_redis.start()
    warden.step()
    (node,) = warden.nodes.all()
    assert (node.capacity, node.ordinary) == (7, 2)


def test_a_redis_that_refuses_writes_ends_the_look_and_not_the_warden(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    warden = warden_of(own_redis, "own")
    warden.store.client.replicaof("127.0.0.1", str(free_port()))
    warden.step()
    assert "refuses writes" in caplog.text
    warden.store.client.replicaof("NO", "ONE")
    warden.step()
    assert [node.name for node in warden.nodes.all()] == ["one"]


def test_a_job_whose_process_is_gone_is_put_back_at_the_next_look(
    warden: Warden, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    warden.step()
    node.submit("a", job_id="j")
    taken = node.take(runner=runner_in(sleeper))
    warden.step()
    assert warden.lanes.job("j").state == "running"
    sleeper.kill()
    sleeper.wait()
    warden.step()
    job = warden.lanes.job("j")
    assert (job.state, job.losses, node.work()) == ("ready", 1, {})
    assert taken
    assert node.finish(taken).state == "succeeded"


def test_a_zombie_is_gone_and_a_pid_that_is_used_again_is_somebody_else(
    warden: Warden, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    warden.step()
    node.submit("a", job_id="zombie")
    node.submit("b", job_id="reused")
    node.take(runner=runner_in(sleeper))
    node.take(runner=f"{os.getpid()}.12345.0")
    os.kill(sleeper.pid, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    warden.step()
    assert [warden.lanes.job(job_id).losses for job_id in ("zombie", "reused")] == [1, 1]
    assert len(node.order()) == 2


def test_a_stopped_process_is_not_renewed_and_a_living_one_is(
    redis_server: RedisServer, prefix: str, sleeper: subprocess.Popen[bytes]
) -> None:
    warden = warden_of(redis_server, prefix, lock_ttl=0.2, node_ttl=60)
    node = Puppet(warden.store, ttl=60000)
    warden.step()
    node.submit("a", job_id="j")
    taken = node.take(runner=runner_in(sleeper))
    leases = warden.store.key("leases")

    def renewed() -> bool:
        """Whether one sixth of the ttl or more later the lease was set anew."""
        warden.store.client.zadd(leases, {"j": 9e15})
        for _ in range(6):
            warden.store.client.blpop([warden.store.key("never")], timeout=0.02)
            warden.watch.step(False)
        return (warden.store.client.zscore(leases, "j") or 0) < 9e15

    assert renewed()
    sleeper.send_signal(signal.SIGSTOP)
    while processes.condition(runner_in(sleeper).rpartition(".")[0]) != "stopped":
        pass
    assert not renewed()
    sleeper.send_signal(signal.SIGCONT)
    assert taken
    node.finish(taken)


def test_a_job_past_its_limit_loses_its_process_and_no_other_does(
    warden: Warden, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    warden.step()
    node.submit("a", job_id="j", time_limit=5)
    node.submit("b", job_id="other")
    taken = node.take(runner=runner_in(sleeper))
    warden.step()
    assert sleeper.poll() is None
    assert taken
    work = warden.store.key("work", "one")
    warden.store.client.hset(work, taken.runner, f"{taken.token} 1 j")
    stale = warden.watch.held()[0]
    warden.step()
    assert sleeper.wait(10) == -signal.SIGKILL
    job = warden.lanes.job("j")
    assert (job.state, job.error and job.error["type"]) == ("failed", "TimedOut")
    assert warden.watch.stop(stale), "seen twice, stopped once"
    assert node.order() == ["other"]


def test_a_process_that_went_on_to_another_job_is_not_stopped_for_the_last_one(
    warden: Warden, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    warden.step()
    node.submit("a", job_id="slow")
    node.submit("b", job_id="next")
    first = node.take(runner=runner_in(sleeper))
    assert first
    warden.store.client.hset(warden.store.key("work", "one"), first.runner, f"{first.token} 1 slow")
    (held,) = warden.watch.held()
    second = node.finish(first, next_token="next-token").next
    warden.watch.stop(held)
    assert sleeper.poll() is None
    assert second
    assert node.finish(second).state == "succeeded"


def test_a_second_worker_of_the_same_name_takes_no_work_and_says_so_once(
    redis_server: RedisServer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = warden_of(redis_server, prefix, "a"), warden_of(redis_server, prefix, "b")
    first.step()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            second.step()
    assert caplog.text.count("another living worker is named one") == 1
    first.leave()
    second.step()
    assert second.store.client.hget(second.store.key("node", "one"), "incarnation") == b"b"
    second.leave()


def test_a_node_that_was_declared_dead_registers_again_at_once(warden: Warden) -> None:
    warden.step()
    warden.hear({"capacity": 9})
    warden.step()
    warden.store.client.zadd(warden.store.key("alive"), {"one": 1})
    Puppet(warden.store).sweep()
    assert warden.nodes.all() == []
    warden.step()
    (node,) = warden.nodes.all()
    assert node.capacity == 9


def test_a_node_that_comes_back_keeps_what_its_processes_went_on_with_before_it_is_rung(
    warden: Warden, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    warden.step()
    node.submit("a", job_id="kept")
    node.submit("b", job_id="succeeded")
    kept, succeeded = (node.take(runner=runner_in(sleeper) + str(i)) for i in range(2))
    warden.step()
    warden.store.client.zadd(warden.store.key("alive"), {"one": 1})
    node.lapse("kept", "succeeded")
    assert sorted(node.sweep()[0]) == ["kept", "succeeded"]
    other = Puppet(warden.store, "other")
    other.up(queue="nothing")
    warden.lanes.cancel("succeeded")
    warden.step()
    job = warden.lanes.job("kept")
    assert (job.state, job.losses, node.rung(), node.ready()) == ("running", 0, [], [])
    assert [value.decode().split()[-1] for value in node.work().values()] == ["kept"]
    assert kept
    assert succeeded
    assert node.finish(kept) == ("accepted", "succeeded", None)
    assert node.finish(succeeded).state == "cancelled"


def test_the_end_of_the_worker_hands_back_what_it_held_and_stops_its_processes(
    warden: Warden, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    warden.step()
    node.submit("a", job_id="j")
    taken = node.take(runner=runner_in(sleeper))
    warden.leave()
    assert sleeper.wait(10) == -signal.SIGKILL
    assert warden.lanes.job("j").state == "ready"
    assert warden.nodes.all() == []
    assert taken
    node.finish(taken)
