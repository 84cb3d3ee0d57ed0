"""Numbers that stand on both sides, in Lua and in Python: they say the same, or one is ahead of the other."""

import re

import pytest

from coordinator.core.runner import eager, outbox, results
from coordinator.core.store.library import text_of
from coordinator.ops.diagnosis import entries as diagnosis
from coordinator.ops.diagnosis import lost
from coordinator.ops.verbs import plan
from coordinator.scheduler import beat


def number(file: str, pattern: str) -> int:
    """The number in the only place of a file of Lua that has this form."""
    (found,) = re.findall(pattern, text_of(file))
    return int(found)


@pytest.mark.parametrize(
    ("here", "file", "pattern"),
    [
        (plan._SILENT, "locks", r"locks\.SILENT = (\d+)"),
        (lost._REMEMBERED, "nodes", r"local LOST, NAMED = (\d+)"),
        (eager.MAX_CONFLICTS, "settle", r"'conflicts', 1\) > (\d+)"),
        (plan._HALF * 2, "line", r"sequence - priority \* (\d+)"),
    ],
)
def test_a_number_is_the_same_in_redis_and_here(here: int, file: str, pattern: str) -> None:
    assert here == number(file, pattern)


def test_a_source_counts_as_left_alone_when_another_version_may_replace_it() -> None:
    assert diagnosis._SILENT == beat.LAPSE * 1000


def test_a_runner_sends_what_a_job_owes_before_maintenance_does() -> None:
    """Else links would be called twice."""
    after = number("runner", r"c\.tell_after, c\.direct = (\d+)")
    assert after > (outbox._OURS + outbox._AGAIN) * 1000


def test_what_a_job_owes_is_tried_for_about_a_day() -> None:
    first, most = map(int, re.findall(r"math\.min\((\d+) \* 2 \^ \(tries - 1\), (\d+)\)", text_of("job"))[0])
    pauses = [min(first * 2**tries, most) for tries in range(results.MOST_TRIES)]
    assert 23 <= sum(pauses) / 3_600_000 <= 26
