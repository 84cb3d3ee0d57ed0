"""The database of an outbox as a load: orders, each written in one transaction with the job that ships it."""

from sqlalchemy import Engine, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from coordinator import outbox_table

PATIENCE = {"connect_timeout": 5, "options": "-c statement_timeout=5000"}  # s, and ms


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    job: Mapped[str] = mapped_column(primary_key=True)


ROWS = outbox_table(Base.metadata)


def connected(url: str) -> Engine:
    return create_engine(url, pool_pre_ping=True, connect_args=PATIENCE)


def rows(engine: Engine) -> list[str]:
    """The jobs that no relay has submitted so far."""
    with engine.connect() as connection:
        return list(connection.execute(select(ROWS.c.job_id)).scalars())


def relayed(engine: Engine) -> set[str]:
    """The jobs of committed orders whose rows are gone, since a relay has submitted them."""
    with engine.connect() as connection:
        waits = select(ROWS.c.job_id)
        return set(connection.execute(select(Order.job).where(Order.job.not_in(waits))).scalars())
