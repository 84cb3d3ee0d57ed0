"""One stage for the tests of a process that only look; one browser for those that look as people do."""

from collections.abc import Callable, Iterator

import pytest
from celery import Celery

from coordinator import Coordinator
from coordinator.core.author import Author
from coordinator.ops.dashboard import dashboard
from tests.coordinator.ops.dashboard.stage import TOKEN, Stage, TestClient
from tests.harness.redis import RedisServer

Visit = Callable[..., TestClient]


@pytest.fixture(scope="session")
def stage(redis_server: RedisServer) -> Iterator[Stage]:
    made = Stage(redis_server, redis_server.fresh_prefix())
    yield made
    made.end()


@pytest.fixture
def visit() -> Visit:
    """A program or a browser at a dashboard; with `author`, there is a login of the user's own."""

    def visitor(coordinator: Coordinator, author: Author | None = None, **headers: str) -> TestClient:
        own = (lambda _: author) if author else None
        app = dashboard(coordinator, auth=own, token=TOKEN, hosts=["testserver"])
        return TestClient(app, headers=headers or {"Authorization": f"Bearer {TOKEN}"}, follow_redirects=False)

    return visitor


@pytest.fixture
def shop(redis_server: RedisServer, stage: Stage) -> Iterator[Celery]:
    app = Celery("shop", broker=redis_server.url(1), set_as_current=False)
    own = stage.coordinator.settings
    coordinator = Coordinator(app, url=own.url, prefix=own.prefix)
    yield app
    coordinator.close()
