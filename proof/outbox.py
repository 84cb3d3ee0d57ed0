"""The outbox as a load: clients write orders and their jobs in transactions, the nodes' relays submit the jobs. Nodes
and clients import it where the world has it."""

import os
import time
from contextlib import suppress

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from coordinator import current_job
from coordinator.core.jobs.options import SubmitOptions
from proof.orders import ROWS, Order, connected
from proof.shop import app, coordinator, witness, work

engine = connected(os.environ["PROOF_OUTBOX"])
coordinator.outbox(table=ROWS, engine=engine)


class Undone(Exception):
    """The transaction is to be rolled back."""


@app.task(shared=False)
def ship(seconds: float) -> str:
    """Note whether the order is there, and do its work."""
    job = current_job()
    assert job
    with Session(engine) as session:
        witness.note("info", "ship", job=job.id, found=session.get(Order, job.id) is not None)
    return str(work(seconds))


def order(job: str, key: str, seconds: float, undone: bool) -> None:
    """Write an order and its job within `seconds`, and commit both or roll both back. What was committed, as the order
    tells, is not written again. Asks again while the database is away.
    """
    while True:
        try:
            with suppress(Undone):
                _write(job, key, seconds, undone)
            return
        except DBAPIError:
            time.sleep(0.1)


def _write(job: str, key: str, seconds: float, undone: bool) -> None:
    with Session(engine) as session, session.begin():
        if session.get(Order, job):
            return
        session.add(Order(job=job))
        options: SubmitOptions = {"job_id": job, "max_attempts": 1000, "retry_delay": 0.5, "time_limit": 15}
        coordinator.submit_on_commit(key, ship.s(seconds), session=session, outbox=True, **options)
        session.flush()
        time.sleep(seconds)
        if undone:
            raise Undone
