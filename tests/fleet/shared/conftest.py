"""Tests that leave a node as it was: those of a file share one, and run in one process, one after the other."""

from collections.abc import Iterator

import pytest

from tests.harness.fleet import Fleet
from tests.harness.redis import RedisServer
from tests.harness.standing import Standing


@pytest.fixture(scope="module")
def standing(
    request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    """The file's `NODE`."""
    started = Standing(redis_server, tmp_path_factory.mktemp("standing"), request.module.NODE)
    yield started
    started.end()


@pytest.fixture
def fleet(standing: Standing, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """The one node that the tests of the file share: lent to this test, which leaves it as it was."""
    with standing.lent(request.node) as fleet:
        yield fleet
