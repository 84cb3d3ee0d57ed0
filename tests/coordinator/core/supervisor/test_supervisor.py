"""The looks of a supervisor, taken one by one on a real Redis."""

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from coordinator.core.author import act_of
from coordinator.core.fleet import processes
from coordinator.core.fleet.measures import Measures
from coordinator.core.fleet.nodes import About
from coordinator.core.fleet.status_file import anonymous_file
from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from coordinator.core.supervisor.supervisor import Supervisor, SupervisorConfig
from coordinator.local.redis import free_port
from coordinator.ops.diagnosis.lost import lost_nodes
from coordinator.ops.diagnosis.snapshot import Snapshot
from tests.harness.hand_node import TASKS, Puppet
from tests.harness.redis import RedisServer
from tests.harness.stopping import stop
from tests.harness.waiting import wait_until

NOWHERE = Path("/nowhere")


def supervisor_of(
    server: RedisServer, prefix: str, incarnation: str = "a", status_file: Path = NOWHERE, memory: int = 0,
    wake: Callable[[bytes], object] = bytes, **settings: Any,
) -> Supervisor:  # fmt: skip
    given = {"url": server.url(0), "prefix": prefix, "sweep": 0.05, **settings}
    made = Settings.load(given, {}, {})
    about: About = {"app": "shop", "capacity": 4, "ordinary": 0, "load": 0}
    serves = ["app shop", "queue celery"]
    worker = processes.identity()
    memory = memory or anonymous_file(Path("/tmp"))
    config = SupervisorConfig(
        "one", incarnation, worker, about, serves, list(TASKS), "shop:app", str(status_file), memory, 0, {}
    )
    return Supervisor(Store(made), config, wake=wake)


@pytest.fixture
def supervisor(redis_server: RedisServer, prefix: str) -> Supervisor:
    return supervisor_of(redis_server, prefix)


@pytest.fixture
def node(supervisor: Supervisor) -> Puppet:
    return Puppet(supervisor.store)


def identity_of(process: subprocess.Popen[bytes]) -> str:
    return f"{process.pid}.{processes.birth(process.pid)}"


def runner_in(supervisor: Supervisor, process: str) -> str:
    """A runner of this process that is about to claim."""
    return supervisor.status_file.writer(process).start("r")


def test_what_the_worker_told_while_redis_was_away_is_said_later(own_redis: RedisServer) -> None:
    supervisor = supervisor_of(own_redis, "own", timeout=1)
    supervisor.step()
    own_redis.kill()
    supervisor.receive({"capacity": 7, "ordinary": 2})
    supervisor.step()
    own_redis.start()
    supervisor.step()
    (node,) = supervisor.nodes.all()
    assert (node.capacity, node.ordinary) == (7, 2)


def test_a_node_says_by_how_much_its_host_s_clock_is_ahead(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor.settings = supervisor.settings.model_copy(update={"heartbeat": 0.05})
    now = time.time
    for ahead in (0, 7):
        monkeypatch.setattr(time, "time", lambda ahead=ahead: now() + ahead)

        def looked(ahead: int = ahead) -> bool:
            supervisor.step()
            return abs(supervisor.nodes.all()[0].skew - ahead) <= 1

        wait_until(looked)
    supervisor.leave()


def test_a_redis_that_refuses_writes_ends_the_look_and_not_the_supervisor(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = supervisor_of(own_redis, "own")
    supervisor.store._client.replicaof("127.0.0.1", str(free_port()))
    supervisor.step()
    assert "refuses writes" in caplog.text
    supervisor.store._client.replicaof("NO", "ONE")
    supervisor.step()
    assert [node.name for node in supervisor.nodes.all()] == ["one"]


def test_a_zombie_is_gone_and_a_pid_that_is_used_again_is_somebody_else(
    supervisor: Supervisor, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    supervisor.step()
    node.submit("a", job_id="zombie")
    node.submit("b", job_id="reused")
    writer = supervisor.status_file.writer(identity_of(sleeper))
    writer.begin(node.must_take(runner=writer.start("r")).token, None)
    node.take(runner=f"{os.getpid()}.12345.0")
    os.kill(sleeper.pid, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    supervisor.step()
    assert [supervisor.lanes.job(job_id).losses for job_id in ("zombie", "reused")] == [1, 1]
    assert len(node.order()) == 2


def test_a_stopped_process_is_not_renewed_and_a_living_one_is(
    redis_server: RedisServer, prefix: str, sleeper: subprocess.Popen[bytes]
) -> None:
    supervisor = supervisor_of(redis_server, prefix, lock_ttl=0.6, node_ttl=60)
    node = Puppet(supervisor.store, ttl=60000)
    supervisor.step()
    node.submit("a", job_id="j")
    taken = node.must_take(runner=runner_in(supervisor, identity_of(sleeper)))
    leases = supervisor.store.key("leases")

    def renewed() -> bool:
        """Whether one sixth of the ttl or more later the lease was set anew."""
        supervisor.store._client.zadd(leases, {"j": 9e15})
        for _ in range(6):
            supervisor.store._client.blpop([supervisor.store.key("never")], timeout=0.02)
            supervisor.watch.step(supervisor.store.now())
        return (supervisor.store._client.zscore(leases, "j") or 0) < 9e15

    assert renewed()
    stop(sleeper)
    assert not renewed()
    sleeper.send_signal(signal.SIGCONT)
    node.finish(taken)


def test_a_job_past_its_limit_loses_its_process_and_no_other_does(
    supervisor: Supervisor, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    supervisor.step()
    node.submit("a", job_id="j", time_limit=5)
    node.submit("b", job_id="other")
    taken = node.must_take(runner=runner_in(supervisor, identity_of(sleeper)))
    supervisor.step()
    assert sleeper.poll() is None
    work = supervisor.store.key("work", "one")
    supervisor.store._client.hset(work, taken.runner, f"{taken.token} 1 j")
    stale = supervisor.watch.entries()[0]
    supervisor.step()
    assert sleeper.wait(60) == -signal.SIGKILL
    job = supervisor.lanes.job("j")
    assert (job.state, job.error and job.error["type"]) == ("failed", "TimedOut")
    assert supervisor.watch.stop(stale), "seen twice, stopped once"
    assert node.order() == ["other"]


def test_a_process_that_went_on_to_another_job_is_not_stopped_for_the_last_one(
    supervisor: Supervisor, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    supervisor.step()
    node.submit("a", job_id="slow")
    node.submit("b", job_id="next")
    first = node.must_take(runner=runner_in(supervisor, identity_of(sleeper)))
    supervisor.store._client.hset(supervisor.store.key("work", "one"), first.runner, f"{first.token} 1 slow")
    (held,) = supervisor.watch.entries()
    second = node.finish(first, next_token="next-token").next
    supervisor.watch.stop(held)
    assert sleeper.poll() is None
    assert second
    assert node.finish(second).state == "succeeded"


def test_a_second_worker_of_the_same_name_takes_no_work_and_says_so_once(
    redis_server: RedisServer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = supervisor_of(redis_server, prefix, "a"), supervisor_of(redis_server, prefix, "b", node_ttl=3)
    first.step()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            second.step()
        assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
            ("WARNING", "another living worker is named one, or it died less than 3 s ago: this one waits")
        ]
        caplog.clear()
        wait_until(lambda: second._beat() and bool(caplog.records))
        second.step()
        assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
            ("ERROR", "another living worker is named one: this one takes no work")
        ]
        first.leave()
        caplog.clear()
        for _ in range(2):
            second.step()
        assert [one.getMessage() for one in caplog.records] == ["node one: that is over: this worker takes work"]
    assert second.store._client.hget(second.store.key("node", "one"), "incarnation") == b"b"
    second.leave()


def test_a_user_without_the_rights_is_an_error_that_is_told_once(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = supervisor_of(own_redis, "t")
    with own_redis.client() as looks, caplog.at_level(logging.WARNING):
        supervisor.step()
        looks.execute_command("ACL", "SETUSER", "default", "-zadd")
        for _ in range(3):
            supervisor.step()
        looks.execute_command("ACL", "SETUSER", "default", "+zadd")
        supervisor.step()
    told = [(one.levelname, one.getMessage()) for one in caplog.records]
    assert [level for level, _ in told] == ["ERROR", "WARNING"], told
    assert "forbids that to this user" in told[0][1]
    assert told[1][1] == "node one: that is over: this worker takes work"
    supervisor.leave()


def test_a_worker_that_has_connected_anew_is_woken_again_for_what_is_on_its_way(
    redis_server: RedisServer, prefix: str
) -> None:
    woken = list[bytes]()
    supervisor = supervisor_of(redis_server, prefix, wake=woken.append)
    supervisor.step()
    supervisor.store._client.zadd(supervisor.store.key("rung", "one"), {"1-1": 2e15, "1-2": 2e15})
    supervisor.receive({"woken": 1})
    assert woken == [b"1-1", b"1-2"]


def test_a_beat_wakes_the_worker_again_where_no_runner_has_answered(redis_server: RedisServer, prefix: str) -> None:
    woken = list[bytes]()
    supervisor = supervisor_of(redis_server, prefix, wake=woken.append)
    node = Puppet(supervisor.store)
    supervisor.step()
    node.submit("a")
    supervisor.step()
    assert woken == [], "it is on its way"
    (bell,) = node.rung()
    supervisor.store._client.zadd(supervisor.store.key("rung", "one"), {bell: 0})
    supervisor.step()
    assert woken == [bell.encode()]
    node.order()


def test_a_node_that_was_declared_dead_registers_again_at_once(supervisor: Supervisor) -> None:
    supervisor.step()
    supervisor.receive({"capacity": 9})
    supervisor.step()
    supervisor.store._client.zadd(supervisor.store.key("alive"), {"one": 1})
    Puppet(supervisor.store).sweep()
    assert supervisor.nodes.all() == []
    supervisor.step()
    (node,) = supervisor.nodes.all()
    assert node.capacity == 9


def test_a_node_that_redis_forgets_again_and_again_tries_twice_a_step_and_says_so(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a Redis that evicts its key."""
    step, beats = supervisor.store.step, list[str]()

    def forgetful(name: str, *args: Any) -> Any:
        if name == "node_beat":
            beats.append(name)
            supervisor.store._client.delete(supervisor.store.key("node", "one"))
        return step(name, *args)

    supervisor.step()
    with monkeypatch.context() as evicting:
        evicting.setattr(supervisor.store, "step", forgetful)
        supervisor.step()
        assert (len(beats), supervisor.registered) == (2, False)
    assert caplog.text.count("declared dead") == 1
    supervisor.step()
    assert supervisor.registered


@pytest.mark.parametrize("ended", [False, True])
def test_a_node_that_comes_back_keeps_what_its_processes_went_on_with_before_it_is_rung(
    redis_server: RedisServer, prefix: str, tmp_path: Path, sleeper: subprocess.Popen[bytes], ended: bool
) -> None:
    """Its supervisor has not looked since they began."""
    supervisor = supervisor_of(redis_server, prefix, status_file=tmp_path)
    node = Puppet(supervisor.store)
    supervisor.step()
    node.submit("a", job_id="kept")
    node.submit("b", job_id="succeeded")
    writers = [supervisor.status_file.writer(identity_of(sleeper)) for _ in range(2)]
    kept, succeeded = (node.must_take(runner=writer.start("r")) for writer in writers)
    for writer, taken in zip(writers, (kept, succeeded), strict=True):
        writer.begin(taken.token, None, taken.id)
        if ended:  # and Redis was away
            writer.end()
    supervisor.store._client.zadd(supervisor.store.key("alive"), {"one": 1})
    node.lapse("kept", "succeeded")
    assert sorted(node.sweep()[0]) == ["kept", "succeeded"]
    other = Puppet(supervisor.store, "other")
    other.up(queue="nothing")
    supervisor.lanes.cancel("succeeded")
    supervisor.step()
    job = supervisor.lanes.job("kept")
    assert (job.state, job.losses, node.rung(), node.ready()) == ("running", 0, [], [])
    assert [value.decode().split()[-1] for value in node.work().values()] == ["kept"]
    assert node.finish(kept) == ("accepted", "succeeded", None)
    assert node.finish(succeeded).state == "cancelled"


def test_a_supervisor_that_stood_still_between_its_look_and_its_sweep_loses_no_job(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than a lease. It beats, and so its node is alive again, before it has renewed the lease."""
    supervisor = supervisor_of(redis_server, prefix, lock_ttl=0.3, node_ttl=0.3, sweep=0.05)
    node = Puppet(supervisor.store, ttl=300)
    supervisor.step()
    node.submit("a", job_id="j", max_losses=0)
    taken = node.must_take(runner=runner_in(supervisor, processes.identity()))
    look = supervisor.watch.step

    def stand_still(*args: Any) -> None:
        look(*args)
        lapsed = supervisor.store.now() + 600
        acts = cycle(["1", "0"])  # somebody takes steps: the leases' time goes on
        wait_until(
            lambda: (
                supervisor.store.step("node_drain", "other", next(acts), act_of()) and supervisor.store.now() > lapsed
            )
        )
        supervisor._beaten = supervisor._swept = 0

    monkeypatch.setattr(supervisor.watch, "step", stand_still)
    supervisor.step()
    monkeypatch.undo()
    supervisor.step()
    assert (supervisor.lanes.job("j").state, supervisor.lanes.job("j").losses) == ("running", 0)
    node.finish(taken)


def test_the_end_of_the_worker_hands_back_what_it_held_and_stops_its_processes(
    supervisor: Supervisor, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    supervisor.step()
    node.submit("a", job_id="j")
    taken = node.must_take(runner=runner_in(supervisor, identity_of(sleeper)))
    supervisor.leave()
    assert sleeper.wait(60) == -signal.SIGKILL
    assert supervisor.lanes.job("j").state == "ready"
    assert supervisor.nodes.all() == []
    node.finish(taken)


def test_a_sign_off_that_has_to_be_tried_again_tells_all_jobs_that_the_lost_node_held(
    supervisor: Supervisor, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    supervisor.step()
    node.submit("a", job_id="j")
    taken = node.must_take(runner=runner_in(supervisor, identity_of(sleeper)))
    supervisor.watch.leave()  # and then Redis was away for a moment
    supervisor.leave()
    (lost,) = lost_nodes(Snapshot(supervisor.lanes))
    assert (lost.count, [job.id for job in lost.jobs]) == (1, ["j"])
    node.finish(taken)


def test_a_beat_tells_how_long_jobs_ran_in_the_processes_of_the_node(
    redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    supervisor = supervisor_of(redis_server, prefix, status_file=tmp_path, heartbeat=0.05)
    measures = Measures(tmp_path)
    for _ in range(30):
        measures.times.note("shop.work", 2.0)
        measures.add("run", "shop.work", 2.0)
    measures.write()
    other = Puppet(supervisor.store, "other")
    other.up()
    other.nodes.beat("other", "a", {}, {"shop.work": (30, 0.5)})

    def slowdown() -> float:
        supervisor.step()
        return next(node.slowdown for node in supervisor.nodes.all() if node.name == "one")

    wait_until(lambda: slowdown() == 4)
    for path in tmp_path.iterdir():
        path.unlink()
    wait_until(lambda: slowdown() == 1)


def test_a_sweep_goes_on_at_once_while_there_is_more(redis_server: RedisServer, prefix: str) -> None:
    """One step does a hundred of each kind, so that others get in between."""
    supervisor = supervisor_of(redis_server, prefix, sweep=20, lock_ttl=60, node_ttl=60)
    node = Puppet(supervisor.store)
    supervisor.beat()
    for number in range(220):
        node.submit(f"a{number}", job_id=f"lost{number}", max_losses=1)
        node.submit(f"b{number}", job_id=f"due{number}", max_attempts=2)
    while taken := node.take():
        if taken.id.startswith("due"):
            node.finish(taken, "raised", delay=3_600_000)
    for kind in ("leases", "due"):
        names: Any = supervisor.store._client.zrange(supervisor.store.key(kind), 0, -1)
        supervisor.store._client.zadd(supervisor.store.key(kind), dict.fromkeys(names, 1))
    supervisor.sweep(supervisor.store.now() + 60_000)
    assert supervisor.lanes.counts()["ready"] == 440
    assert len(node.order()) == 440
