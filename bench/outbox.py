"""What does a job add to a commit: submitted after it, or written into an outbox? In SQLite and in PostgreSQL, which
flush each commit to the disk, beside a commit with one row. And how soon does an idle relay have it in its lane?
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celery import Celery
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine
from sqlalchemy.orm import Session

from bench import amount
from bench.servers import redis_server
from coordinator import Coordinator, outbox_table
from tests.harness.postgres import PostgresServer

TIMES, WAITS = amount((1500, 50), (2, 2))
SERVER = {"shared_buffers": "64MB", "max_connections": "20"}


def main() -> None:
    with redis_server() as url:
        for name, opened in (("SQLite", sqlite), ("PostgreSQL", postgres)):
            with opened() as engine:
                app: Any = Celery("bench", broker="memory://", set_as_current=False)
                coordinator = Coordinator(app, url=f"{url}/0", prefix=name)
                app.task(name="bench.ship")(ship)
                orders = tables_of(coordinator, engine)
                print(f"{name}: {commits(coordinator, engine, orders)}; {delay(coordinator, engine)}")
                coordinator.close()


def ship(number: int) -> None: ...


@contextmanager
def sqlite() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{Path(folder) / 'bench.sqlite'}")
        yield engine
        engine.dispose()


@contextmanager
def postgres() -> Iterator[Engine]:
    with PostgresServer(**SERVER) as server, server.database() as name:
        engine = create_engine(server.url(name))
        yield engine
        engine.dispose()


def tables_of(coordinator: Coordinator, engine: Engine) -> Table:
    metadata = MetaData()
    orders = Table("orders", metadata, Column("id", Integer, primary_key=True))
    coordinator.outbox(table=outbox_table(metadata), engine=engine)
    metadata.create_all(engine)
    return orders


def commits(coordinator: Coordinator, engine: Engine, orders: Table) -> str:
    """Medians of a commit, in turns."""

    def act(submit: Callable[[Session], object]) -> float:
        began = time.perf_counter()
        with Session(engine) as session, session.begin():
            session.execute(orders.insert())
            submit(session)
        return (time.perf_counter() - began) * 1e6

    def submit(session: Session, outbox: bool) -> str:
        return coordinator.submit_on_commit(
            "order", {"task": "bench.ship", "args": [1]}, session=session, outbox=outbox
        )

    ways: dict[str, Callable[[Session], object]] = {
        "a commit": lambda session: None,
        "submit_on_commit": lambda session: submit(session, False),
        "outbox": lambda session: submit(session, True),
    }
    figures: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TIMES):
        for name, way in ways.items():
            figures[name].append(act(way))
    bare = statistics.median(figures["a commit"])
    added = {name: statistics.median(found) - bare for name, found in figures.items() if name != "a commit"}
    return f"a commit {bare:.0f} us" + "".join(f", {name} {more:+.0f} us" for name, more in added.items())


def delay(coordinator: Coordinator, engine: Engine) -> str:
    """From the return of a commit until the job is in its lane."""
    relay: Any = coordinator._node_plugins[0]("bench")
    relay.start()
    found = []
    for number in range(WAITS):
        with Session(engine) as session, session.begin():
            coordinator.submit_on_commit(
                f"late/{number}", {"task": "bench.ship", "args": [1]}, session=session, outbox=True
            )
        began = time.perf_counter()
        while not coordinator.lane(f"late/{number}").length:
            time.sleep(0.0005)
        found.append((time.perf_counter() - began) * 1e3)
        time.sleep(0.05)
    relay.stop()
    found = sorted(found[1:])  # before the first, it has the rows of `commits` to submit
    return f"in its lane p50 {statistics.median(found):.1f}, p99 {found[int(len(found) * 0.99)]:.1f} ms later"


if __name__ == "__main__":
    main()
