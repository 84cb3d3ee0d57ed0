"""An app with an outbox in SQLite or PostgreSQL, a node of it that is played by hand, and its relays."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from sqlalchemy import Engine, MetaData, create_engine
from sqlalchemy.orm import Session

from coordinator import Coordinator, Lease, outbox_table
from coordinator.outbox.outbox import Outbox
from coordinator.outbox.relay import Relay
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer

SHIP = {"task": "shop.work", "args": [1]}


def work(number: int) -> int:
    return number


class Shop:
    """`engine`: of the database that has the outbox; `box`: the outbox."""

    def __init__(self, engine: Engine, **settings: Any) -> None:
        self.engine = engine
        app: Any = Celery("shop", broker="memory://", set_as_current=False)
        app.task(name="shop.work", shared=False)(work)
        self.coordinator = Coordinator(app, **settings)
        table = outbox_table(metadata := MetaData())
        metadata.create_all(engine)
        self.coordinator.outbox(table=table, engine=engine)
        box = self.coordinator._outboxes[""]
        assert isinstance(box, Outbox)
        self.box, self.rows = box, box.rows
        self.node = Puppet(self.coordinator.store)
        self.node.up()

    def write(self, keys: Any = "order", number: int = 1, **options: Any) -> str:
        """A transaction that submits one job."""
        with Session(self.engine) as session, session.begin():
            return self.submit(session, keys, number, **options)

    def submit(self, session: Session, keys: Any = "order", number: int = 1, **options: Any) -> str:
        ship = {"task": "shop.work", "args": [number]}
        return self.coordinator.submit_on_commit(keys, ship, session=session, outbox=True, **options)

    def relay(self) -> Relay:
        made: Any = self.coordinator._node_plugins[0]("one")
        assert isinstance(made, Relay)
        return made

    @contextmanager
    def leading(self) -> Iterator[tuple[Relay, Lease]]:
        """A relay that holds the lane, and looks when the test says so."""
        with self.coordinator.lock(self.box.key, 30) as lease:
            yield self.relay(), lease

    def lead(self, act: Callable[[Relay, Lease], object]) -> None:
        with self.leading() as (relay, lease):
            act(relay, lease)

    def look(self) -> None:
        """A relay begins, looks until nothing is left to do, and ends."""
        with self.leading() as (relay, lease):
            relay._forget_deleted(lease)
            while relay.look(lease):
                pass

    def jobs(self, key: str = "order") -> list[str]:
        return list(self.coordinator.lane(key).jobs)

    def numbers(self, key: str = "order") -> list[int]:
        return [self.coordinator.job(job_id).args[0] for job_id in self.coordinator.lane(key, most=10_000).jobs]

    def take_over(self, lease: Lease) -> None:
        """The holder of the lane is taken for dead."""
        self.node.lapse(lease.job_id)

    def end_all(self) -> list[str]:
        """Run all jobs, and forget their records."""
        ended = self.node.order()
        for job_id in ended:
            self.coordinator.store.read("DEL", self.coordinator.store.key("job", job_id))
        return ended

    @property
    def left(self) -> int:
        return len(self.rows.read(100_000))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay that is to stop sees it soon."""
    monkeypatch.setattr("coordinator.outbox.relay._SLICE", 0.1)


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.sqlite'}")
    yield engine
    engine.dispose()


@pytest.fixture
def postgres(database: str) -> Iterator[Engine]:
    engine = create_engine(database)
    yield engine
    engine.dispose()


@pytest.fixture
def shop_in(redis_server: RedisServer, prefix: str) -> Iterator[Callable[..., Shop]]:
    """Makes the shop, with the outbox in the database of an engine."""
    made: list[Shop] = []

    def make(engine: Engine, **settings: Any) -> Shop:
        at = {"url": redis_server.url(0), "prefix": prefix, "timeout": 10}
        made.append(Shop(engine, **at | settings))
        return made[-1]

    yield make
    for shop in made:
        shop.coordinator.close()


@pytest.fixture
def shop(sqlite: Engine, shop_in: Callable[..., Shop]) -> Shop:
    return shop_in(sqlite)


@pytest.fixture(params=["sqlite", "postgres"])
def either(request: pytest.FixtureRequest, shop_in: Callable[..., Shop]) -> Shop:
    return shop_in(request.getfixturevalue(request.param))
