"""A pytest plugin for the tests of your app: submitted jobs run at once in the test's thread, on a private Redis.

    def test_an_order_is_shipped(coordinator_jobs):
        jobs = coordinator_jobs(shop.coordinator)
        shop.order(42)
        assert [job.key for job in jobs.submitted] == ["order/42"]
        assert shop.coordinator.job(jobs.submitted[0].id).state == "succeeded"

`coordinator.testing.inline` lists the differences from real nodes. If no test uses the fixture, no server is started,
and only this module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from coordinator.coordinator import Coordinator
    from coordinator.testing.inline import InlineJobs


@pytest.fixture(scope="session")
def coordinator_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a private Redis for the test session, and return its URL. The server is one on the PATH, or the one that
    the extra `embedded` installs.
    """
    from coordinator.local.redis import EmbeddedRedis, EmbeddedUnavailable

    try:
        server = EmbeddedRedis(tmp_path_factory.mktemp("coordinator-redis")).__enter__()
    except EmbeddedUnavailable as error:
        pytest.fail(f"coordinator_jobs: {error}", pytrace=False)
    yield server.url
    server.stop()


@pytest.fixture
def coordinator_jobs(
    monkeypatch: pytest.MonkeyPatch, coordinator_redis: str
) -> Iterator[Callable[[Coordinator], InlineJobs]]:
    """Return a function: `coordinator_jobs(coordinator)` makes the coordinator's jobs run in the submitting thread
    until the test ends, and returns the InlineJobs that lists them.
    """
    from coordinator.testing.inline import InlineJobs

    begun: list[InlineJobs] = []

    def begin(coordinator: Coordinator) -> InlineJobs:
        jobs = InlineJobs(coordinator, coordinator_redis)
        begun.append(jobs)
        jobs.install(monkeypatch)
        return jobs

    yield begin
    for jobs in begun:
        jobs.close()


@pytest.fixture
def coordinator_no_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a test fail if it calls the real Redis of a coordinator. To protect all tests, set
    `usefixtures = coordinator_no_redis` in the pytest configuration.
    """
    from coordinator.testing.inline import refuse_real_redis

    refuse_real_redis(monkeypatch)
