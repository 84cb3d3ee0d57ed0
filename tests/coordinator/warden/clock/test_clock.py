"""The looks of a clock, taken one by one on a real Redis."""

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

from coordinator.author import act_of
from coordinator.diagnosis.lost import lost_nodes
from coordinator.diagnosis.snapshot import Snapshot
from coordinator.fleet import processes
from coordinator.fleet.board import nameless
from coordinator.fleet.measures import Measures
from coordinator.fleet.nodes import About
from coordinator.local.redis import free_port
from coordinator.settings import Settings
from coordinator.store.client import Store
from coordinator.warden.clock.clock import Charge, Clock
from tests.harness.hand_node import TASKS, Puppet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

NOWHERE = Path("/nowhere")


def clock_of(
    server: RedisServer, prefix: str, incarnation: str = "a", board: Path = NOWHERE, memory: int = 0,
    wake: Callable[[bytes], object] = bytes, **settings: Any,
) -> Clock:  # fmt: skip
    given = {"url": server.url(0), "prefix": prefix, "sweep": 0.05, **settings}
    made = Settings.load(given, {}, {})
    about: About = {"app": "shop", "capacity": 4, "ordinary": 0, "load": 0}
    serves = ["app shop", "queue celery"]
    worker = processes.identity()
    memory = memory or nameless(Path("/tmp"))
    charge = Charge("one", incarnation, worker, about, serves, list(TASKS), "shop:app", str(board), memory, 0, {})
    return Clock(Store(made), charge, wake=wake)


@pytest.fixture
def clock(redis_server: RedisServer, prefix: str) -> Clock:
    return clock_of(redis_server, prefix)


@pytest.fixture
def node(clock: Clock) -> Puppet:
    return Puppet(clock.store)


def identity_of(process: subprocess.Popen[bytes]) -> str:
    return f"{process.pid}.{processes.birth(process.pid)}"


def runner_in(clock: Clock, process: str) -> str:
    """A runner of this process that is about to claim."""
    return clock.board.pen(process).start("r")


def test_what_the_worker_told_while_redis_was_away_is_said_later(own_redis: RedisServer) -> None:
    clock = clock_of(own_redis, "own", timeout=0.3)
    clock.step()
    own_redis.kill()
    clock.receive({"capacity": 7, "ordinary": 2})
    clock.step()
    own_redis.start()
    clock.step()
    (node,) = clock.nodes.all()
    assert (node.capacity, node.ordinary) == (7, 2)


def test_a_node_says_by_how_much_its_host_s_clock_is_ahead(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    clock.settings = clock.settings.model_copy(update={"heartbeat": 0.05})
    now = time.time
    for ahead in (0, 7):
        monkeypatch.setattr(time, "time", lambda ahead=ahead: now() + ahead)

        def looked(ahead: int = ahead) -> bool:
            clock.step()
            return abs(clock.nodes.all()[0].skew - ahead) <= 1

        wait_until(looked)
    clock.leave()


def test_a_redis_that_refuses_writes_ends_the_look_and_not_the_warden(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = clock_of(own_redis, "own")
    clock.store._client.replicaof("127.0.0.1", str(free_port()))
    clock.step()
    assert "refuses writes" in caplog.text
    clock.store._client.replicaof("NO", "ONE")
    clock.step()
    assert [node.name for node in clock.nodes.all()] == ["one"]


def test_a_zombie_is_gone_and_a_pid_that_is_used_again_is_somebody_else(
    clock: Clock, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    clock.step()
    node.submit("a", job_id="zombie")
    node.submit("b", job_id="reused")
    pen = clock.board.pen(identity_of(sleeper))
    pen.begin(node.must_take(runner=pen.start("r")).token, None)
    node.take(runner=f"{os.getpid()}.12345.0")
    os.kill(sleeper.pid, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    clock.step()
    assert [clock.lanes.job(job_id).losses for job_id in ("zombie", "reused")] == [1, 1]
    assert len(node.order()) == 2


def test_a_stopped_process_is_not_renewed_and_a_living_one_is(
    redis_server: RedisServer, prefix: str, sleeper: subprocess.Popen[bytes]
) -> None:
    clock = clock_of(redis_server, prefix, lock_ttl=0.6, node_ttl=60)
    node = Puppet(clock.store, ttl=60000)
    clock.step()
    node.submit("a", job_id="j")
    taken = node.must_take(runner=runner_in(clock, identity_of(sleeper)))
    leases = clock.store.key("leases")

    def renewed() -> bool:
        """Whether one sixth of the ttl or more later the lease was set anew."""
        clock.store._client.zadd(leases, {"j": 9e15})
        for _ in range(6):
            clock.store._client.blpop([clock.store.key("never")], timeout=0.02)
            clock.watch.step(clock.store.now())
        return (clock.store._client.zscore(leases, "j") or 0) < 9e15

    assert renewed()
    sleeper.send_signal(signal.SIGSTOP)
    while processes.condition(identity_of(sleeper)) != "stopped":
        pass
    assert not renewed()
    sleeper.send_signal(signal.SIGCONT)
    node.finish(taken)


def test_a_job_past_its_limit_loses_its_process_and_no_other_does(
    clock: Clock, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    clock.step()
    node.submit("a", job_id="j", time_limit=5)
    node.submit("b", job_id="other")
    taken = node.must_take(runner=runner_in(clock, identity_of(sleeper)))
    clock.step()
    assert sleeper.poll() is None
    work = clock.store.key("work", "one")
    clock.store._client.hset(work, taken.runner, f"{taken.token} 1 j")
    stale = clock.watch.entries()[0]
    clock.step()
    assert sleeper.wait(10) == -signal.SIGKILL
    job = clock.lanes.job("j")
    assert (job.state, job.error and job.error["type"]) == ("failed", "TimedOut")
    assert clock.watch.stop(stale), "seen twice, stopped once"
    assert node.order() == ["other"]


def test_a_process_that_went_on_to_another_job_is_not_stopped_for_the_last_one(
    clock: Clock, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    clock.step()
    node.submit("a", job_id="slow")
    node.submit("b", job_id="next")
    first = node.must_take(runner=runner_in(clock, identity_of(sleeper)))
    clock.store._client.hset(clock.store.key("work", "one"), first.runner, f"{first.token} 1 slow")
    (held,) = clock.watch.entries()
    second = node.finish(first, next_token="next-token").next
    clock.watch.stop(held)
    assert sleeper.poll() is None
    assert second
    assert node.finish(second).state == "succeeded"


def test_a_second_worker_of_the_same_name_takes_no_work_and_says_so_once(
    redis_server: RedisServer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = clock_of(redis_server, prefix, "a"), clock_of(redis_server, prefix, "b")
    first.step()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            second.step()
    assert caplog.text.count("another living worker is named one") == 1
    first.leave()
    second.step()
    assert second.store._client.hget(second.store.key("node", "one"), "incarnation") == b"b"
    second.leave()


def test_a_worker_that_has_connected_anew_is_woken_again_for_what_is_on_its_way(
    redis_server: RedisServer, prefix: str
) -> None:
    woken = list[bytes]()
    clock = clock_of(redis_server, prefix, wake=woken.append)
    clock.step()
    clock.store._client.zadd(clock.store.key("rung", "one"), {"1-1": 2e15, "1-2": 2e15})
    clock.receive({"woken": 1})
    assert woken == [b"1-1", b"1-2"]


def test_a_beat_wakes_the_worker_again_where_no_runner_has_answered(redis_server: RedisServer, prefix: str) -> None:
    woken = list[bytes]()
    clock = clock_of(redis_server, prefix, wake=woken.append)
    node = Puppet(clock.store)
    clock.step()
    node.submit("a")
    clock.step()
    assert woken == [], "it is on its way"
    (bell,) = node.rung()
    clock.store._client.zadd(clock.store.key("rung", "one"), {bell: 0})
    clock.step()
    assert woken == [bell.encode()]
    node.order()


def test_a_node_that_was_declared_dead_registers_again_at_once(clock: Clock) -> None:
    clock.step()
    clock.receive({"capacity": 9})
    clock.step()
    clock.store._client.zadd(clock.store.key("alive"), {"one": 1})
    Puppet(clock.store).sweep()
    assert clock.nodes.all() == []
    clock.step()
    (node,) = clock.nodes.all()
    assert node.capacity == 9


def test_a_node_that_redis_forgets_again_and_again_tries_twice_a_step_and_says_so(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a Redis that evicts its key."""
    step, beats = clock.store.step, list[str]()

    def forgetful(name: str, *args: Any) -> Any:
        if name == "node_beat":
            beats.append(name)
            clock.store._client.delete(clock.store.key("node", "one"))
        return step(name, *args)

    clock.step()
    with monkeypatch.context() as evicting:
        evicting.setattr(clock.store, "step", forgetful)
        clock.step()
        assert (len(beats), clock.registered) == (2, False)
    assert caplog.text.count("declared dead") == 1
    clock.step()
    assert clock.registered


@pytest.mark.parametrize("ended", [False, True])
def test_a_node_that_comes_back_keeps_what_its_processes_went_on_with_before_it_is_rung(
    redis_server: RedisServer, prefix: str, tmp_path: Path, sleeper: subprocess.Popen[bytes], ended: bool
) -> None:
    """Its clock has not looked since they began."""
    clock = clock_of(redis_server, prefix, board=tmp_path)
    node = Puppet(clock.store)
    clock.step()
    node.submit("a", job_id="kept")
    node.submit("b", job_id="succeeded")
    pens = [clock.board.pen(identity_of(sleeper)) for _ in range(2)]
    kept, succeeded = (node.must_take(runner=pen.start("r")) for pen in pens)
    for notice, taken in zip(pens, (kept, succeeded), strict=True):
        notice.begin(taken.token, None, taken.id)
        if ended:  # and Redis was away
            notice.end()
    clock.store._client.zadd(clock.store.key("alive"), {"one": 1})
    node.lapse("kept", "succeeded")
    assert sorted(node.sweep()[0]) == ["kept", "succeeded"]
    other = Puppet(clock.store, "other")
    other.up(queue="nothing")
    clock.lanes.cancel("succeeded")
    clock.step()
    job = clock.lanes.job("kept")
    assert (job.state, job.losses, node.rung(), node.ready()) == ("running", 0, [], [])
    assert [value.decode().split()[-1] for value in node.work().values()] == ["kept"]
    assert node.finish(kept) == ("accepted", "succeeded", None)
    assert node.finish(succeeded).state == "cancelled"


def test_a_clock_that_stood_still_between_its_look_and_its_sweep_loses_no_job(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than a lease. It beats, and so its node is alive again, before it has renewed the lease."""
    clock = clock_of(redis_server, prefix, lock_ttl=0.3, node_ttl=0.3, sweep=0.05)
    node = Puppet(clock.store, ttl=300)
    clock.step()
    node.submit("a", job_id="j", max_losses=0)
    taken = node.must_take(runner=runner_in(clock, processes.identity()))
    look = clock.watch.step

    def stand_still(*args: Any) -> None:
        look(*args)
        lapsed = clock.store.now() + 600
        acts = cycle(["1", "0"])  # somebody takes steps: the leases' time goes on
        wait_until(lambda: clock.store.step("node_drain", "other", next(acts), act_of()) and clock.store.now() > lapsed)
        clock._beaten = clock._swept = 0

    monkeypatch.setattr(clock.watch, "step", stand_still)
    clock.step()
    monkeypatch.undo()
    clock.step()
    assert (clock.lanes.job("j").state, clock.lanes.job("j").losses) == ("running", 0)
    node.finish(taken)


def test_the_end_of_the_worker_hands_back_what_it_held_and_stops_its_processes(
    clock: Clock, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    clock.step()
    node.submit("a", job_id="j")
    taken = node.must_take(runner=runner_in(clock, identity_of(sleeper)))
    clock.leave()
    assert sleeper.wait(10) == -signal.SIGKILL
    assert clock.lanes.job("j").state == "ready"
    assert clock.nodes.all() == []
    node.finish(taken)


def test_a_sign_off_that_has_to_be_tried_again_tells_all_jobs_that_the_lost_node_held(
    clock: Clock, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    clock.step()
    node.submit("a", job_id="j")
    taken = node.must_take(runner=runner_in(clock, identity_of(sleeper)))
    clock.watch.leave()  # and then Redis was away for a moment
    clock.leave()
    (lost,) = lost_nodes(Snapshot(clock.lanes))
    assert (lost.count, [job.id for job in lost.jobs]) == (1, ["j"])
    node.finish(taken)


def test_a_beat_tells_how_long_jobs_ran_in_the_processes_of_the_node(
    redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    clock = clock_of(redis_server, prefix, board=tmp_path, heartbeat=0.05)
    measures = Measures(tmp_path)
    for _ in range(30):
        measures.times.note("shop.work", 2.0)
        measures.add("run", "shop.work", 2.0)
    measures.write()
    other = Puppet(clock.store, "other")
    other.up()
    other.nodes.beat("other", "a", {}, {"shop.work": (30, 0.5)})

    def pace() -> float:
        clock.step()
        return next(node.pace for node in clock.nodes.all() if node.name == "one")

    wait_until(lambda: pace() == 4, 20)
    for path in tmp_path.iterdir():
        path.unlink()
    wait_until(lambda: pace() == 1, 20)


def test_a_sweep_goes_on_at_once_while_there_is_more(redis_server: RedisServer, prefix: str) -> None:
    """One step does a hundred of each kind, so that others get in between."""
    clock = clock_of(redis_server, prefix, sweep=20, lock_ttl=60, node_ttl=60)
    node = Puppet(clock.store)
    clock.beat()
    for number in range(220):
        node.submit(f"a{number}", job_id=f"lost{number}", max_losses=1)
        node.submit(f"b{number}", job_id=f"due{number}", max_attempts=2)
    while taken := node.take():
        if taken.id.startswith("due"):
            node.finish(taken, "raised", delay=3_600_000)
    for kind in ("leases", "due"):
        names: Any = clock.store._client.zrange(clock.store.key(kind), 0, -1)
        clock.store._client.zadd(clock.store.key(kind), dict.fromkeys(names, 1))
    clock.sweep(clock.store.now() + 60_000)
    assert clock.lanes.counts()["ready"] == 440
    assert len(node.order()) == 440
