"""procrastinate on PostgreSQL, two worker processes; a job's lock is its key."""

import os
from functools import cache

import psycopg
from procrastinate import App, PsycopgConnector

from bench.peers import body

ADDRESS = os.environ.get("PEERS_POSTGRES", "")

app = App(connector=PsycopgConnector(conninfo=ADDRESS), import_paths=[__name__])

WORKER = ("procrastinate", "-a", f"{__name__}.app", "worker")
PORTION = 500


@app.task
async def work(key: int, number: int) -> None:
    body.run()


def send(jobs: list[tuple[int, int]]) -> None:
    """In one insert. `batch_defer` of a task would do the same, but with one lock for all."""
    opened().job_manager.batch_defer_jobs(
        [work.configure(lock=f"key/{key}").make_new_job(key=key, number=number) for key, number in jobs]
    )


@cache
def opened() -> App:
    return app.open()


def prepare() -> None:
    """Have the planner know a table with jobs in line, as a table in use is known: else it takes 500 times as long."""
    opened().schema_manager.apply_schema()
    send([(number % 1_000, number) for number in range(2_000)])
    with psycopg.connect(ADDRESS, autocommit=True) as connection:
        connection.execute("ANALYZE")
        connection.execute("DELETE FROM procrastinate_jobs")
