"""The supervisor judges by evidence: an end that Redis has lost, a body that never began, a time limit."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from coordinator.core.fleet import processes
from coordinator.core.fleet.status_file import StatusFile, StatusWriter
from coordinator.core.supervisor.runner_watch import LongRuns
from coordinator.core.supervisor.supervisor import Supervisor
from tests.coordinator.core.supervisor.test_supervisor import identity_of, supervisor_of
from tests.harness.hand_node import Puppet, Taken
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import ROOT, python

RANDOM = "f" * 24
TOKENS = [f"{RANDOM}{number:08x}" for number in range(3)]


@pytest.fixture
def supervisor(redis_server: RedisServer, prefix: str, tmp_path: Path) -> Supervisor:
    return supervisor_of(redis_server, prefix, status_file=tmp_path)


@pytest.fixture
def status_file(supervisor: Supervisor) -> StatusFile:
    return supervisor.status_file


@pytest.fixture
def node(supervisor: Supervisor) -> Puppet:
    supervisor.step()
    return Puppet(supervisor.store)


def taken_by(
    node: Puppet, status_file: StatusFile, process: subprocess.Popen[bytes], job_id: str = "j", **options: object
) -> tuple[Taken, StatusWriter]:
    """A job that a runner of this process has claimed, and the runner's writer."""
    node.submit("a", job_id=job_id, **options)
    writer = status_file.writer(identity_of(process))
    return node.must_take(TOKENS[1], writer.start("r")), writer


def test_a_job_that_its_runner_ended_and_redis_lost_is_put_back_and_its_process_spared(
    supervisor: Supervisor, status_file: StatusFile, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    _, writer = taken_by(node, status_file, sleeper, max_losses=0)
    writer.close()
    supervisor.step()
    job = supervisor.lanes.job("j")
    assert (job.state, job.losses, node.work()) == ("ready", 0, {})
    assert sleeper.poll() is None


def test_a_runner_that_went_on_to_a_later_claim_holds_nothing_before(
    supervisor: Supervisor, status_file: StatusFile, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    _, writer = taken_by(node, status_file, sleeper)
    writer.begin(TOKENS[1], None)
    supervisor.step()
    assert supervisor.lanes.job("j").state == "running"
    writer.begin(TOKENS[2], None)
    supervisor.step()
    assert supervisor.lanes.job("j").state == "ready"
    assert sleeper.poll() is None


@pytest.mark.parametrize(("begun", "state"), [(None, "rolling_back"), (0, "rolling_back"), (1, "double_fault")])
def test_a_rollback_is_begun_again_only_if_none_of_it_is_half_done(
    supervisor: Supervisor,
    status_file: StatusFile,
    node: Puppet,
    sleeper: subprocess.Popen[bytes],
    begun: int | None,
    state: str,
) -> None:
    """It ended and Redis lost that, its body never began, or the worker stopped in the middle of it."""
    node.submit("a", job_id="j", rollback={"task": "shop.other"}, max_losses=0)
    node.finish(node.must_take(), "failed")
    writer = status_file.writer(identity_of(sleeper))
    node.must_take(TOKENS[1], writer.start("r"))
    if begun is None:
        writer.close()
    else:
        writer.begin(TOKENS[begun], None)
        status_file.stops = True
        sleeper.kill()
        sleeper.wait()
    supervisor.step()
    assert supervisor.lanes.job("j").state == state
    if state == "rolling_back":
        assert node.finish(node.must_take()).state == "rolled_back"
        assert supervisor.lanes.job("j").attempt == 2  # its own, and the rollback


def test_silence_is_no_evidence(
    supervisor: Supervisor, status_file: StatusFile, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    taken_by(node, status_file, sleeper)
    for _ in range(3):
        supervisor.step()
    assert supervisor.lanes.job("j").state == "running"


def test_a_process_that_ends_before_the_body_began_costs_no_loss(
    supervisor: Supervisor, status_file: StatusFile, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    _, writer = taken_by(node, status_file, sleeper, max_losses=0)
    writer.begin(TOKENS[0], None)
    sleeper.kill()
    sleeper.wait()
    supervisor.step()
    job = supervisor.lanes.job("j")
    assert (job.state, job.losses) == ("ready", 0)


def test_a_process_that_ends_in_the_body_is_a_loss(
    supervisor: Supervisor, status_file: StatusFile, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    _, writer = taken_by(node, status_file, sleeper)
    writer.begin(TOKENS[1], None)
    sleeper.kill()
    sleeper.wait()
    supervisor.step()
    assert (supervisor.lanes.job("j").state, supervisor.lanes.job("j").losses) == ("ready", 1)


@pytest.mark.parametrize(("stops", "losses"), [(False, 1), (True, 0)])
def test_a_process_that_a_signal_ended_is_a_loss_only_once_the_worker_has_looked_and_goes_on(
    supervisor: Supervisor,
    status_file: StatusFile,
    node: Puppet,
    sleeper: subprocess.Popen[bytes],
    stops: bool,
    losses: int,
) -> None:
    """The signal may reach the worker, too, and later."""
    _, writer = taken_by(node, status_file, sleeper)
    writer.begin(TOKENS[1], None)
    writer.fail("SystemExit(-15)", signalled=True)
    sleeper.kill()
    sleeper.wait()
    status_file.look(stops=False)
    for _ in range(3):
        supervisor.step()
    assert supervisor.lanes.job("j").state == "running"
    status_file.look(stops)
    supervisor.step()
    assert (supervisor.lanes.job("j").state, supervisor.lanes.job("j").losses) == ("ready", losses)


def test_a_worker_that_noted_its_stop_and_is_gone_with_its_status_file_loses_nothing(
    supervisor: Supervisor, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    worker = StatusFile(supervisor.status_file.folder, os.dup(supervisor.status_file.fd))
    _, writer = taken_by(node, worker, sleeper, max_losses=0)
    writer.begin(TOKENS[1], None)
    worker.stops = True
    worker.close()
    supervisor.leave()
    assert (supervisor.lanes.job("j").state, supervisor.lanes.job("j").losses) == ("ready", 0)


def test_the_time_limit_counts_from_the_beginning_of_the_body(
    supervisor: Supervisor, status_file: StatusFile, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    _, writer = taken_by(node, status_file, sleeper, time_limit=0.001)
    supervisor.step()
    assert sleeper.poll() is None, "it has not begun"
    writer.begin(TOKENS[1], 60)
    supervisor.step()
    assert sleeper.poll() is None, "it has begun just now"
    writer.begin(TOKENS[1], 0.001)
    writer.end()
    supervisor.step()
    assert sleeper.poll() is None, "it has returned in time"
    writer.begin(TOKENS[1], 0.001)
    wait_until(lambda: supervisor.step() or sleeper.poll() == -signal.SIGKILL)  # type: ignore[func-returns-value]
    assert supervisor.lanes.job("j").state == "failed"


def test_a_released_job_that_is_tried_again_has_its_old_process_stopped_and_not_the_new_one(
    supervisor: Supervisor, status_file: StatusFile, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    taken, writer = taken_by(node, status_file, sleeper)
    writer.begin(TOKENS[1], None)
    supervisor.lanes.release("a", why="by hand")
    supervisor.lanes.retry("j", why="again")
    second = node.must_take()
    supervisor.step()
    assert sleeper.wait(60) == -signal.SIGKILL
    assert node.finish(taken).verdict == "condemned"
    assert supervisor.lanes.job("j").state == "running"
    assert node.finish(second) == ("accepted", "succeeded", None)


def test_the_supervisor_looks_again_before_it_kills(
    supervisor: Supervisor,
    status_file: StatusFile,
    node: Puppet,
    sleeper: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, writer = taken_by(node, status_file, sleeper)
    writer.begin(TOKENS[1], None)
    supervisor.lanes.cancel("j")
    step = supervisor.store.step

    def fails_meanwhile(name: str, *args: str) -> object:
        """The runner fails while the supervisor stands between condemning and killing."""
        reply = step(name, *args)
        if name == "runner_condemn":
            writer.close()
        return reply

    monkeypatch.setattr(supervisor.store, "step", fails_meanwhile)
    supervisor.step()
    assert sleeper.poll() is None
    assert supervisor.lanes.job("j").state == "cancelled"


def test_a_supervisor_that_is_started_again_renews_at_its_first_look(
    redis_server: RedisServer,
    supervisor: Supervisor,
    status_file: StatusFile,
    node: Puppet,
    sleeper: subprocess.Popen[bytes],
) -> None:
    taken, writer = taken_by(node, status_file, sleeper)
    writer.begin(TOKENS[1], None)
    node.lapse("j")
    after = supervisor_of(
        redis_server, supervisor.settings.prefix, status_file=status_file.folder, memory=os.dup(status_file.fd)
    )
    after.step()
    assert node.sweep()[0] == []
    assert node.finish(taken) == ("accepted", "succeeded", None)


def test_a_supervisor_that_may_open_no_file_takes_no_process_for_gone() -> None:
    code = """
import os, resource
from coordinator.core.fleet import processes
me = processes.identity()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        os.dup(1)
except OSError:
    pass
try:
    print(processes.condition(me))
except OSError as error:
    print(error.strerror)
"""
    assert python(["-c", code], ROOT, os.environ).stdout == "Too many open files\n"


def test_a_record_that_is_gone_ends_no_look(
    supervisor: Supervisor,
    status_file: StatusFile,
    node: Puppet,
    sleeper: subprocess.Popen[bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not where a node hands over, nor where a run is long."""
    writers = [status_file.writer(process) for process in (identity_of(sleeper), processes.identity())]
    runners = [writer.start("r") for writer in writers]
    for number, job_id in enumerate(("gone", "here")):
        node.submit(job_id, job_id=job_id)
        taken = node.must_take(TOKENS[number], runners[number])
        writers[number].begin(taken.token, None)
    node.store._client.delete(node.store.key("job", "gone"))
    supervisor.watch.long_runs = LongRuns(0)
    supervisor.watch.step(supervisor.store.now())
    assert "job here (here) runs for" in caplog.text
    supervisor.watch.step(supervisor.store.now(), hands_over=True)
    assert [runner.decode() for runner in node.work()] == runners[1:]
    sleeper.wait(60)
    node.finish(taken)
