"""Stores and reads when each component last ran."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Engine, select

from tasks.batches.schema import components
from tasks.database import insert


class ComponentRun(NamedTuple):
    """A run of a component. `submitted`: the number of jobs that it submitted, one for each item."""

    at: datetime
    job: str
    submitted: int


def ran(engine: Engine, component: str, *, job: str, submitted: int, now: datetime) -> None:
    """Store a component's last run. `job`: the id of the run's job. `submitted`: how many jobs the run submitted."""
    values = {"ran": now, "job": job, "submitted": submitted}
    with engine.begin() as connection:
        statement = insert(connection, components).values(component=component, **values)
        connection.execute(statement.on_conflict_do_update(index_elements=["component"], set_=values))


def last(engine: Engine, component: str) -> ComponentRun | None:
    """Read a component's last run. None: it has not run yet."""
    query = select(components).where(components.c.component == component)
    with engine.connect() as connection:
        row = connection.execute(query).first()
    return None if row is None or row.ran is None else ComponentRun(row.ran, row.job, row.submitted)
