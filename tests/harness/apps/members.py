"""The app of the tests' beats: an entry for each row of a file, read anew when the file changes."""

import hashlib
import json
import os
import select
import time
from collections.abc import Iterable
from pathlib import Path

from celery import Celery

from coordinator import Coordinator
from coordinator.scheduler.entry import Entry

if os.environ.get("FAKETIME"):
    # libfaketime leaves the monotonic clock as it is, but not a sleep until an instant of that clock.
    time.sleep = lambda seconds: select.select((), (), (), seconds)

app = Celery("members", broker=os.environ["TEST_BROKER"])
app.conf.task_default_queue = os.environ["COORDINATOR_PREFIX"]
coordinator = Coordinator(app)


@coordinator.schedule_source
def rows() -> tuple[str, Iterable[Entry]]:
    text = Path(os.environ["TEST_ROWS"]).read_text()
    return hashlib.sha256(text.encode()).hexdigest(), (Entry(**row) for row in json.loads(text))
