"""Connects the coordinator to the workers and beats of an app. The other modules of this folder are imported inside
functions, so that only a worker loads them.
"""

from __future__ import annotations

import logging
from socket import gethostname
from typing import TYPE_CHECKING

from celery import Celery, signals

if TYPE_CHECKING:
    from celery.apps.worker import Worker
    from celery.beat import Service

STEP = "coordinator.core.worker.bootstep:SupervisorStep"


def bind(app: Celery) -> None:
    """Add the coordinator's bootstep to each worker of the app, and have each beat check the coordinator's Redis at its
    start.
    """
    app.steps["consumer"].add(STEP)

    def begin_worker(sender: str, instance: Worker, **_: object) -> None:
        if instance.app is app:
            from coordinator.core.worker.bootstep import begin

            begin(app, sender, instance)

    def check(sender: Service, **_: object) -> None:
        if sender.app is app:
            from coordinator.core.store.server import log_server

            if not app.coordinator.node:  # no beat inside a worker
                app.coordinator.store.connections.call_it("beat", gethostname())
            log_server(app.coordinator.store, logging.getLogger("coordinator.beat"))

    signals.beat_init.connect(check, weak=False, dispatch_uid=f"coordinator-beat-{id(app)}")
    signals.celeryd_after_setup.connect(begin_worker, weak=False, dispatch_uid=f"coordinator-queue-{id(app)}")
