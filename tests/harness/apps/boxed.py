"""An app with an outbox, whose processes die: `python -m tests.harness.apps.boxed write KEY TRANSACTIONS EACH
PACE`, or `relay`.

A writer puts the numbers from 1 under its key, each in a transaction that also submits a job. Each third is rolled
back, and the same number is written by the next. EACH so many commits it dies at once, before it says so to anybody.
PACE seconds lie between two transactions.
"""

import os
import signal
import sys
import time
from typing import Any

from celery import Celery
from sqlalchemy import Column, Engine, Float, Integer, MetaData, Table, Text, create_engine, event, func, select
from sqlalchemy.orm import Session

from coordinator import Coordinator, outbox_table

app = Celery("boxed", broker=os.environ["TEST_BROKER"], backend=os.environ["TEST_BACKEND"])
app.conf.broker_transport_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}
app.conf.result_backend_transport_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}
coordinator = Coordinator(app)

_AT = os.environ["TEST_DATABASE"]
engine: Engine = create_engine(_AT, connect_args={"timeout": 60} if _AT.startswith("sqlite") else {})
metadata = MetaData()
orders = Table(
    "orders", metadata,
    Column("key", Text, primary_key=True), Column("number", Integer, primary_key=True), Column("at", Float),
)  # fmt: skip
coordinator.outbox(table=outbox_table(metadata), engine=engine)


@app.task(name="boxed.work")
def work(number: int) -> int:
    return number


def submit(session: Session, key: str, number: int) -> str:
    session.execute(orders.insert().values(key=key, number=number, at=time.time()))
    return coordinator.submit_on_commit(key, work.s(number), session=session, outbox=True)


def last(key: str) -> int:
    with Session(engine) as session:
        return session.scalar(select(func.max(orders.c.number)).where(orders.c.key == key)) or 0


def write(key: str, transactions: int, each: int, pace: float) -> None:
    for turn in range(transactions):
        time.sleep(pace)
        number = last(key) + 1
        with Session(engine) as session:
            submit(session, key, number)
            if turn % 3 == 0:
                session.rollback()
                continue
            if number % each == 0:
                event.listen(session, "after_commit", die, insert=True)
            session.commit()


def die(_: Session) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def relay() -> None:
    plugin: Any = coordinator._node_plugins[0]("one")
    plugin.run()


if __name__ == "__main__":
    if sys.argv[1] == "relay":
        relay()
    else:
        write(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
