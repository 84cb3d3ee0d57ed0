"""A pytest plugin for users' own suites: jobs run in the test's thread, on a private Redis.

    def test_an_order_is_shipped(coordinator_jobs):
        jobs = coordinator_jobs(shop.coordinator)
        shop.order(42)
        assert [job.key for job in jobs.submitted] == ["order/42"]
        assert shop.coordinator.job(jobs.submitted[0].id).state == "succeeded"

`coordinator.testing.inline` says how that differs from a fleet. A suite that does not use the fixture imports no more
than this module, and starts no server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from coordinator.client.coordinator import Coordinator
    from coordinator.testing.inline import InlineJobs


@pytest.fixture(scope="session")
def coordinator_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the session's private Redis: a server of the PATH, or of the extra `embedded`."""
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
    """A function that takes a Coordinator, and makes its jobs run in the submitting thread for this test."""
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
    """Fail a test that asks the Redis of an app. For a whole suite: `usefixtures = coordinator_no_redis`."""
    from coordinator.testing.inline import refuse_real_redis

    refuse_real_redis(monkeypatch)
