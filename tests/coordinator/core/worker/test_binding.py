"""The worker's part is put into the app that a worker is of, and into no other app of its process."""

import logging
from pathlib import Path
from socket import gethostname
from types import SimpleNamespace

import pytest
from celery import signals
from celery.beat import Service

from coordinator.core.runner.claim import TASK
from tests.harness.installation import Installation


def test_a_worker_s_start_begins_its_own_app_s_part_alone(apps: Installation) -> None:
    shop, depot = apps.shop.app, apps.depot.app
    worker = SimpleNamespace(app=depot, max_tasks_per_child=None, max_memory_per_child=None)
    signals.celeryd_after_setup.send(sender="one@test", instance=worker, conf=depot.conf)
    assert depot.coordinator._incarnation
    assert TASK in depot.tasks
    assert not shop.coordinator._incarnation
    assert TASK not in shop.tasks
    names = [app.coordinator.store.connections.name for app in (depot, shop)]
    assert names == ["coordinator:worker:one@test", f"coordinator:client:{gethostname()}"]
    depot.coordinator._status_file.close()


def test_a_beat_s_start_asks_its_own_app_s_redis_what_it_can_do(
    apps: Installation, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    assert apps.depot.app
    with caplog.at_level(logging.INFO):
        signals.beat_init.send(sender=Service(apps.shop.app, schedule_filename=str(tmp_path / "schedule")))
    asked = [record for record in caplog.records if record.name == "coordinator.beat"]
    assert [record.getMessage().partition(" (")[0] for record in asked if record.levelname == "WARNING"] == [
        "warning [redis.persistence]"
    ]
    names = [app.coordinator.store.connections.name for app in (apps.shop.app, apps.depot.app)]
    assert names == [f"coordinator:{role}:{gethostname()}" for role in ("beat", "client")]
