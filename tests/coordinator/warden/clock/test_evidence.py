"""The clock judges by evidence: what a runner has ended and Redis has lost, a body that never began, a time limit."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from coordinator.fleet import processes
from coordinator.fleet.board import Board, Pen
from coordinator.warden.clock.clock import Clock
from coordinator.warden.clock.runner_watch import LongRuns
from tests.coordinator.warden.clock.test_clock import clock_of, identity_of
from tests.harness.hand_node import Puppet, Taken
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import ROOT, python

RANDOM = "f" * 24
TOKENS = [f"{RANDOM}{number:08x}" for number in range(3)]


@pytest.fixture
def clock(redis_server: RedisServer, prefix: str, tmp_path: Path) -> Clock:
    return clock_of(redis_server, prefix, board=tmp_path)


@pytest.fixture
def board(clock: Clock) -> Board:
    return clock.board


@pytest.fixture
def node(clock: Clock) -> Puppet:
    clock.step()
    return Puppet(clock.store)


def taken_by(
    node: Puppet, board: Board, process: subprocess.Popen[bytes], job_id: str = "j", **options: object
) -> tuple[Taken, Pen]:
    """A job that a runner of this process has claimed, and the runner's pen."""
    node.submit("a", job_id=job_id, **options)
    pen = board.pen(identity_of(process))
    return node.must_take(TOKENS[1], pen.start("r")), pen


def test_a_job_that_its_runner_ended_and_redis_lost_is_put_back_and_its_process_spared(
    clock: Clock, board: Board, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    _, pen = taken_by(node, board, sleeper, max_losses=0)
    pen.close()
    clock.step()
    job = clock.lanes.job("j")
    assert (job.state, job.losses, node.work()) == ("ready", 0, {})
    assert sleeper.poll() is None


def test_a_runner_that_went_on_to_a_later_claim_holds_nothing_before(
    clock: Clock, board: Board, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    _, pen = taken_by(node, board, sleeper)
    pen.begin(TOKENS[1], None)
    clock.step()
    assert clock.lanes.job("j").state == "running"
    pen.begin(TOKENS[2], None)
    clock.step()
    assert clock.lanes.job("j").state == "ready"
    assert sleeper.poll() is None


@pytest.mark.parametrize(("begun", "state"), [(None, "rolling_back"), (0, "rolling_back"), (1, "double_fault")])
def test_a_rollback_is_begun_again_only_if_none_of_it_is_half_done(
    clock: Clock, board: Board, node: Puppet, sleeper: subprocess.Popen[bytes], begun: int | None, state: str
) -> None:
    """It ended and Redis lost that, its body never began, or the worker stopped in the middle of it."""
    node.submit("a", job_id="j", rollback={"task": "shop.other"}, max_losses=0)
    node.finish(node.must_take(), "failed")
    pen = board.pen(identity_of(sleeper))
    node.must_take(TOKENS[1], pen.start("r"))
    if begun is None:
        pen.close()
    else:
        pen.begin(TOKENS[begun], None)
        board.stops = True
        sleeper.kill()
        sleeper.wait()
    clock.step()
    assert clock.lanes.job("j").state == state
    if state == "rolling_back":
        assert node.finish(node.must_take()).state == "rolled_back"
        assert clock.lanes.job("j").attempt == 2  # its own, and the rollback


def test_silence_is_no_evidence(clock: Clock, board: Board, node: Puppet, sleeper: subprocess.Popen[bytes]) -> None:
    taken_by(node, board, sleeper)
    for _ in range(3):
        clock.step()
    assert clock.lanes.job("j").state == "running"


def test_a_process_that_ends_before_the_body_began_costs_no_loss(
    clock: Clock, board: Board, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    _, pen = taken_by(node, board, sleeper, max_losses=0)
    pen.begin(TOKENS[0], None)
    sleeper.kill()
    sleeper.wait()
    clock.step()
    job = clock.lanes.job("j")
    assert (job.state, job.losses) == ("ready", 0)


def test_a_process_that_ends_in_the_body_is_a_loss(
    clock: Clock, board: Board, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    _, pen = taken_by(node, board, sleeper)
    pen.begin(TOKENS[1], None)
    sleeper.kill()
    sleeper.wait()
    clock.step()
    assert (clock.lanes.job("j").state, clock.lanes.job("j").losses) == ("ready", 1)


@pytest.mark.parametrize(("stops", "losses"), [(False, 1), (True, 0)])
def test_a_process_that_a_signal_ended_is_a_loss_only_once_the_worker_has_looked_and_goes_on(
    clock: Clock, board: Board, node: Puppet, sleeper: subprocess.Popen[bytes], stops: bool, losses: int
) -> None:
    """The signal may reach the worker, too, and later."""
    _, pen = taken_by(node, board, sleeper)
    pen.begin(TOKENS[1], None)
    pen.fail("SystemExit(-15)", signalled=True)
    sleeper.kill()
    sleeper.wait()
    board.look(stops=False)
    for _ in range(3):
        clock.step()
    assert clock.lanes.job("j").state == "running"
    board.look(stops)
    clock.step()
    assert (clock.lanes.job("j").state, clock.lanes.job("j").losses) == ("ready", losses)


def test_a_worker_that_noted_its_stop_and_is_gone_with_its_board_loses_nothing(
    clock: Clock, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    worker = Board(clock.board.folder, os.dup(clock.board.memory))
    _, pen = taken_by(node, worker, sleeper, max_losses=0)
    pen.begin(TOKENS[1], None)
    worker.stops = True
    worker.close()
    clock.leave()
    assert (clock.lanes.job("j").state, clock.lanes.job("j").losses) == ("ready", 0)


def test_the_time_limit_counts_from_the_beginning_of_the_body(
    clock: Clock, board: Board, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    _, pen = taken_by(node, board, sleeper, time_limit=0.001)
    clock.step()
    assert sleeper.poll() is None, "it has not begun"
    pen.begin(TOKENS[1], 60)
    clock.step()
    assert sleeper.poll() is None, "it has begun just now"
    pen.begin(TOKENS[1], 0.001)
    pen.end()
    clock.step()
    assert sleeper.poll() is None, "it has returned in time"
    pen.begin(TOKENS[1], 0.001)
    wait_until(lambda: clock.step() or sleeper.poll() == -signal.SIGKILL)  # type: ignore[func-returns-value]
    assert clock.lanes.job("j").state == "failed"


def test_a_released_job_that_is_tried_again_has_its_old_process_stopped_and_not_the_new_one(
    clock: Clock, board: Board, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    taken, pen = taken_by(node, board, sleeper)
    pen.begin(TOKENS[1], None)
    clock.lanes.release("a", why="by hand")
    clock.lanes.retry("j", why="again")
    second = node.must_take()
    clock.step()
    assert sleeper.wait(10) == -signal.SIGKILL
    assert node.finish(taken).verdict == "condemned"
    assert clock.lanes.job("j").state == "running"
    assert node.finish(second) == ("accepted", "succeeded", None)


def test_the_clock_looks_again_before_it_kills(
    clock: Clock, board: Board, node: Puppet, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, pen = taken_by(node, board, sleeper)
    pen.begin(TOKENS[1], None)
    clock.lanes.cancel("j")
    step = clock.store.step

    def fails_meanwhile(name: str, *args: str) -> object:
        """The runner fails while the clock stands between condemning and killing."""
        reply = step(name, *args)
        if name == "runner_condemn":
            pen.close()
        return reply

    monkeypatch.setattr(clock.store, "step", fails_meanwhile)
    clock.step()
    assert sleeper.poll() is None
    assert clock.lanes.job("j").state == "cancelled"


def test_a_clock_that_is_started_again_renews_at_its_first_look(
    redis_server: RedisServer, clock: Clock, board: Board, node: Puppet, sleeper: subprocess.Popen[bytes]
) -> None:
    taken, pen = taken_by(node, board, sleeper)
    pen.begin(TOKENS[1], None)
    node.lapse("j")
    after = clock_of(redis_server, clock.settings.prefix, board=board.folder, memory=os.dup(board.memory))
    after.step()
    assert node.sweep()[0] == []
    assert node.finish(taken) == ("accepted", "succeeded", None)


def test_a_clock_that_may_open_no_file_takes_no_process_for_gone() -> None:
    code = """
import os, resource
from coordinator.fleet import processes
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
    clock: Clock, board: Board, node: Puppet, sleeper: subprocess.Popen[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Not where a node hands over, nor where a run is long."""
    pens = [board.pen(process) for process in (identity_of(sleeper), processes.identity())]
    runners = [pen.start("r") for pen in pens]
    for number, job_id in enumerate(("gone", "here")):
        node.submit(job_id, job_id=job_id)
        taken = node.must_take(TOKENS[number], runners[number])
        pens[number].begin(taken.token, None)
    node.store._client.delete(node.store.key("job", "gone"))
    clock.watch.long_runs = LongRuns(0)
    clock.watch.step(clock.store.now())
    assert "job here (here) runs for" in caplog.text
    clock.watch.step(clock.store.now(), hands_over=True)
    assert [runner.decode() for runner in node.work()] == runners[1:]
    sleeper.wait(10)
    node.finish(taken)
