"""For users' own suites: jobs run in place, at submit, without Redis. A plugin of pytest; its fixture is there at once.

    def test_an_order_is_shipped(coordinator_jobs):
        jobs = coordinator_jobs(shop.coordinator)
        shop.order(42)
        assert [job.key for job in jobs.submitted] == ["order/42"]
        assert shop.coordinator.job(jobs.submitted[0].id).state == "succeeded"

`coordinator.in_place` says how that is different from a fleet. A suite that does not use the fixture imports no more
than this module.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from coordinator.coordinator import Coordinator
    from coordinator.in_place import InPlace


@pytest.fixture
def coordinator_jobs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Coordinator], InPlace]:
    """Call it with a Coordinator: for this test, its jobs run in place."""
    in_place = import_module("coordinator.in_place")
    errors = import_module("coordinator.errors")

    def begin(coordinator: Coordinator) -> InPlace:
        if coordinator.app is None:
            raise errors.SettingsError("a Coordinator without an app has no tasks that could run in place")
        jobs: InPlace = in_place.InPlace(coordinator.app)
        for name, part in (("core", jobs), ("_locks", jobs), ("_sorters", jobs.sorters)):
            monkeypatch.setitem(vars(coordinator), name, part)
        # Celery's would connect, and hear nothing: no result is written.
        answers = {
            "on_task_call": lambda *_: None,
            "add_pending_result": lambda result, **_: result,
            "get_state": lambda *_: "PENDING",
            "apply_chord": lambda *_, **__: None,
            "set_chord_size": jobs.chords.set_size,
            "on_chord_part_return": jobs.chords.count,
        }
        for name, answer in answers.items():
            monkeypatch.setattr(coordinator.app.backend, name, answer, raising=False)  # not each backend has all
        return jobs

    return begin
