"""A Celery app of a Django project, with shared tasks. It is for workers and programs: its fixup stays in a process."""

import os
from typing import Any

from celery import Celery, shared_task
from django.db import connection
from pydantic import BaseModel

from coordinator import Coordinator, current_job

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.harness.apps.site_settings")

app = Celery("site", broker=os.environ["TEST_BROKER"], backend=os.environ["TEST_BACKEND"])
app.conf.broker_transport_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}
app.conf.result_backend_transport_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}
coordinator = Coordinator(app)


class Row(BaseModel):
    id: int


@shared_task(name="site.look", coordinate={"key": "row/{row}"})
def look(row: int) -> list[Any]:
    """Its lane, and whether its process had a connection open before it asked the database."""
    was_open = connection.connection is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s", [row])
        job = current_job()
        return [job.key if job else None, was_open, cursor.fetchone()[0]]


@shared_task(name="site.read", pydantic=True, coordinate={"key": "row/{row[id]}"})
def read(row: Row, factor: int = 1) -> Row:
    assert isinstance(row, Row)
    return Row(id=row.id * factor)
