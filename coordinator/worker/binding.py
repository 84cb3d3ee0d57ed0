"""Adds the coordinator's worker parts to an app. Only a worker imports the rest of this folder, inside functions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from celery import Celery, signals

if TYPE_CHECKING:
    from celery.apps.worker import Worker
    from celery.beat import Service

STEP = "coordinator.worker.bootstep:WardenStep"


def bind(app: Celery) -> None:
    """Add the bootstep of the app's workers; have its beats ask Redis what it can do."""
    app.steps["consumer"].add(STEP)

    def begin_worker(sender: str, instance: Worker, **_: object) -> None:
        if instance.app is app:
            from coordinator.worker.bootstep import begin

            begin(app, sender, instance)

    def ask(sender: Service, **_: object) -> None:
        if sender.app is app:
            from coordinator.diagnosis.server import log_server

            log_server(app.coordinator.store, logging.getLogger("coordinator.beat"))

    signals.beat_init.connect(ask, weak=False, dispatch_uid=f"coordinator-beat-{id(app)}")
    signals.celeryd_after_setup.connect(begin_worker, weak=False, dispatch_uid=f"coordinator-queue-{id(app)}")
