from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from coordinator import Coordinator
from tests.harness.hand_node import Puppet, playing
from tests.harness.redis import RedisServer


def print_page(page: int) -> int:
    return page


class Press:
    """An app with one task, its coordinator, and a node that is played by hand."""

    def __init__(self, server: RedisServer, prefix: str) -> None:
        self.app = Celery("press", broker=server.url(1), set_as_current=False)
        self.app.conf.broker_transport_options = {"global_keyprefix": f"{prefix}."}
        self.coordinator = Coordinator(self.app, url=server.url(0), prefix=prefix)
        self.print = self.app.task(print_page, name="press.print", shared=False)
        self.node: Puppet = playing(self)

    def finish_all(self) -> list[str]:
        return self.node.order()


@pytest.fixture
def press(redis_server: RedisServer, prefix: str) -> Iterator[Any]:
    yield from press_on(redis_server, prefix)


@pytest.fixture
def press_alone(own_redis: RedisServer, prefix: str) -> Iterator[Any]:
    """A press whose server has no connection of anybody else."""
    yield from press_on(own_redis, prefix)


def press_on(server: RedisServer, prefix: str) -> Iterator[Press]:
    made = Press(server, prefix)
    yield made
    made.coordinator.store.close()
    made.app.close()
