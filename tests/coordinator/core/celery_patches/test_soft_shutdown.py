"""A worker says that a cold shutdown begins, before it waits."""

from types import SimpleNamespace
from typing import Any

from coordinator.core.celery_patches.soft_shutdown import before_cold_shutdown


def test_a_cold_shutdown_is_told_before_the_wait_and_an_older_celery_has_no_such_wait() -> None:
    said: list[str] = []
    newer: Any = SimpleNamespace(wait_for_soft_shutdown=lambda: said.append("waits"))
    before_cold_shutdown(newer, lambda: said.append("begins"))
    newer.wait_for_soft_shutdown()
    assert said == ["begins", "waits"]
    older: Any = SimpleNamespace()
    before_cold_shutdown(older, lambda: None)
    assert vars(older) == {}
