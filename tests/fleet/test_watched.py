"""Who watches the tasks of an app sees its jobs, each as the task that it is, and sees no runner."""

from collections import Counter

import pytest

from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_for_count


def test_what_wraps_tracers_and_what_all_tasks_inherit_sees_jobs_and_no_runner(fleet: Fleet) -> None:
    fleet.worker("one", 1, app="watched")
    submit, add = fleet.coordinator.submit, fleet.shop.add
    last = [submit("k", add.s(number, 1)) for number in range(3)][-1]
    assert fleet.coordinator.wait(last.id, 60).state == "succeeded"
    assert add.delay(1, 2).get(timeout=60) == 3
    wait_for_count(lambda: len(list(fleet.stamps())), 20, what="on_success of the last one is not seen")
    seen = [(stamp.name, stamp.what) for stamp in fleet.stamps()]
    assert {name for name, _ in seen} == {add.name}
    assert [what for _, what in seen] == ["traced", "prerun-False", "before_start", "ran", "on_success"] * 4


@pytest.mark.parametrize(("limit", "number", "most"), [("tasks", "2", 2), ("memory", "1", 1)])
def test_the_limits_of_a_pool_process_are_looked_at_after_each_job(
    fleet: Fleet, limit: str, number: str, most: int
) -> None:
    fleet.worker("one", 1, f"--max-{limit}-per-child", number, "-I", "tests.harness.apps.usual")
    jobs = [fleet.coordinator.submit("k", fleet.shop.toil.s(str(one), 1)) for one in range(6)]
    pids = [job.get(60) for job in jobs]
    assert max(Counter(pids).values()) <= most
