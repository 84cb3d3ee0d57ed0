"""Reports when a worker begins a cold shutdown. Celery from 5.5 on sends the signal `worker_shutting_down` only at the
end of a cold shutdown.
"""

from __future__ import annotations

from collections.abc import Callable

from celery.worker import WorkController


def before_cold_shutdown(controller: WorkController, begins: Callable[[], None]) -> None:
    """Call `begins()` when a cold shutdown of the worker begins. To notice that, this wraps the method
    `wait_for_soft_shutdown`, which Celery calls first in each cold shutdown.
    """
    usual = getattr(controller, "wait_for_soft_shutdown", None)
    if usual is None:  # Celery 5.4, which sends `worker_shutting_down` at the beginning
        return

    def wait() -> None:
        begins()
        usual()

    controller.wait_for_soft_shutdown = wait
