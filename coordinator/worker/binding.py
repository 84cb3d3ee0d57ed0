"""Adds the coordinator's worker parts to an app. Only a worker imports the rest of this folder."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from celery import Celery, signals

if TYPE_CHECKING:
    from celery.apps.worker import Worker

CONSUMER = "coordinator.worker.bootstep:Consumer"
STEP = "coordinator.worker.bootstep:WardenStep"


def bind(app: Celery) -> None:
    """Set the defaults and the bootstep of the app's workers."""
    app.add_defaults(
        {
            "worker_cancel_long_running_tasks_on_connection_loss": False,
            "broker_connection_retry_on_startup": True,
            "broker_connection_max_retries": None,  # a worker waits for its broker however long that is away
            "worker_consumer": CONSUMER,
        }
    )
    app.steps["consumer"].add(STEP)

    def begin(sender: str, instance: Worker, **_: object) -> None:
        if instance.app is app:
            import_module("coordinator.worker.bootstep").begin(app, sender, instance)

    signals.celeryd_after_setup.connect(begin, weak=False, dispatch_uid=f"coordinator-queue-{id(app)}")
