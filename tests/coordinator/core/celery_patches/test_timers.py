"""Timers of a worker that were cancelled take no memory."""

from itertools import islice

from kombu.asynchronous.timer import Timer

from coordinator.core.celery_patches.timers import forget_cancelled


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
