"""The limits that Celery's remote control changes in a worker are for messages; its jobs go by those of the app."""

from types import SimpleNamespace
from typing import Any

import pytest
from celery.utils.collections import AttributeDict
from celery.worker.control import Panel

from coordinator.core.worker import remote_control
from tests.harness.hand_node import playing


@pytest.fixture
def limited(keyed: Any) -> Any:
    """The app in a worker that was told limits for three tasks."""
    playing(keyed)
    remote_control.install()
    state = AttributeDict(app=keyed.app, consumer=SimpleNamespace(reset_rate_limits=list))
    for task in (keyed.add, keyed.plain):
        for limit in ("1/m", "2/m"):
            assert "ok" in Panel.data["rate_limit"](state, task.name, limit)
        assert "ok" in Panel.data["time_limit"](state, task_name=task.name, hard=9, soft=8)
    assert "error" in Panel.data["time_limit"](state, "keyed.unknown", 9)
    assert (keyed.add.rate_limit, keyed.add.time_limit) == ("2/m", 9)
    return keyed


def test_a_submit_and_a_call_in_a_worker_go_by_the_declared_limits(limited: Any) -> None:
    coordinator = limited.coordinator
    calls = [limited.add.delay(1, 2), limited.add.apply_async((1, 2), time_limit=7)]
    made = [coordinator.submit("k", limited.plain.s(1)), *calls]
    records = [coordinator.store._client.hgetall(coordinator.store.key("job", job.id)) for job in made]
    assert [record[b"limits"].split()[2] for record in records] == [b"0", b"0", b"7000"]
