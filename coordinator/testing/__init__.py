"""For the tests of your app: submitted jobs run at once in the test's thread, on a private Redis.

    def test_an_order_is_shipped(coordinator_jobs):
        coordinator_jobs(shop.coordinator)
        assert shop.coordinator.submit("order/42", shop.ship.s(42)).get() == "shipped"

A pytest plugin registers the fixtures `coordinator_jobs` and `coordinator_no_redis`. In test classes of unittest and
Django, `inline_jobs` does the same, under any runner. Delays and expiries end only when the test waits or advances the
clock: see `coordinator.testing.inline`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.testing.cases import inline_jobs as inline_jobs
    from coordinator.testing.plugin import coordinator_jobs as coordinator_jobs
    from coordinator.testing.plugin import coordinator_no_redis as coordinator_no_redis

_HOME_OF = {"coordinator_jobs": "plugin", "coordinator_no_redis": "plugin", "inline_jobs": "cases"}
__all__ = ["coordinator_jobs", "coordinator_no_redis", "inline_jobs"]


def __getattr__(name: str) -> object:
    """Import a public name at its first use: pytest loads this package for each user, and unittest may lack pytest."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
