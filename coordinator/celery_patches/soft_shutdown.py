"""Reports the beginning of a cold shutdown. From Celery 5.5 on, its signal `worker_shutting_down` comes only at the
end.
"""

from __future__ import annotations

from collections.abc import Callable

from celery.worker import WorkController


def before_cold_shutdown(controller: WorkController, begins: Callable[[], None]) -> None:
    """Call `begins` when a cold shutdown begins: it always calls `wait_for_soft_shutdown` first."""
    usual = getattr(controller, "wait_for_soft_shutdown", None)
    if usual is None:  # Celery 5.4, which gives its signal first
        return

    def wait() -> None:
        begins()
        usual()

    controller.wait_for_soft_shutdown = wait
