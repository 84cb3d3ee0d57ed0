"""What a worker tells its clock: a line as a whole, or not at all."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import cast

import pytest
from kombu.asynchronous.timer import Timer

from coordinator.worker.bootstep import Consumer, WardenStep, forget_cancelled

READER = "import sys; [print(line, end='', flush=True) for line in sys.stdin]"


@pytest.fixture
def step() -> Iterator[WardenStep]:
    """A worker's part, beside a process that says each line which it hears."""
    step = object.__new__(WardenStep)
    with subprocess.Popen([sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as clock:
        assert clock.stdin is not None
        os.set_blocking(clock.stdin.fileno(), False)
        step._process = clock
        yield step


@pytest.mark.parametrize("no_id", ["x" * 200_000, "x" * 513, "lone\ud800", "", "a\nb", 5, None])
def test_a_revoke_of_what_no_job_can_be_named_is_not_told(step: WardenStep, no_id: object) -> None:
    assert not step.cancel(no_id)  # type: ignore[arg-type]
    assert step.cancel("next")
    assert step._process is not None
    assert step._process.stdout is not None
    assert json.loads(step._process.stdout.readline()) == {"cancel": "next"}


def test_the_longest_id_that_a_job_can_have_is_told(step: WardenStep) -> None:
    assert step.cancel("\u00e9" * 256)
    assert step._process is not None
    assert step._process.stdout is not None
    assert json.loads(step._process.stdout.readline()) == {"cancel": "\u00e9" * 256}


def test_a_line_that_a_pipe_might_cut_is_not_told(step: WardenStep) -> None:
    assert not step.tell({"why": "x" * 200_000})
    assert step.tell({"ending": 1})
    assert step._process is not None
    assert step._process.stdout is not None
    assert json.loads(step._process.stdout.readline()) == {"ending": 1}


def test_the_own_queue_is_not_consumed_before_somebody_takes_its_messages(step: WardenStep) -> None:
    """As after a connection was lost: the clock's word is there before Celery's loop is."""
    step._ear, voice = os.pipe()
    os.set_blocking(step._ear, False)
    os.write(voice, b"1")
    consumed = list[str]()
    tasks = SimpleNamespace(on_message=None, consuming_from=lambda queue: queue in consumed)
    consumer = SimpleNamespace(hostname="one@test", task_consumer=tasks, add_task_queue=consumed.append)
    step._hear(cast(Consumer, consumer))
    assert consumed == []
    tasks.on_message = print
    step._hear(cast(Consumer, consumer))
    assert consumed == ["coordinator.node.one@test"]
    for end in (step._ear, voice):
        os.close(end)


def test_a_worker_that_ends_has_no_consumer_any_more_and_that_is_no_error(step: WardenStep) -> None:
    """With threads and gevent the timer's thread may come between the end of the consumer and its own."""
    step._hear(cast(Consumer, SimpleNamespace(hostname="one@test", task_consumer=None)))


def test_timers_that_were_cancelled_are_forgotten_and_the_others_keep_their_order() -> None:
    timer, fired = Timer(), list[int]()
    for number in range(3000):
        entry = timer.call_after(1e6, print)
        if number % 1000 == 0:
            timer.call_after(-number, fired.append, (number,))
        entry.cancel()
    forget_cancelled(timer)
    assert len(timer) == 3
    for _, due in islice(timer, 3):
        assert due
        due()
    assert fired == [2000, 1000, 0]


def test_few_timers_are_left_alone() -> None:
    timer = Timer()
    timer.call_after(1e6, print).cancel()
    forget_cancelled(timer)
    assert len(timer) == 1
