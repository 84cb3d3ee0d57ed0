"""An app of the tests that has components. Each notes when it begins and ends, by Redis's clock."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from celery import Celery

from coordinator import Coordinator
from tasks.batches import Failure
from tasks.cli.extension import batches
from tasks.components import Components, NotYet, Work, child
from tests.harness.apps.stamps import opened, stamps_in

app = Celery("press", broker=os.environ["TEST_BROKER"])
app.conf.broker_transport_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}
app.conf.worker_hijack_root_logger = False
coordinator = Coordinator(app)
child.PATIENCE = float(os.environ.get("TEST_PATIENCE", child.PATIENCE))
components = Components(coordinator, infrastructure=(TimeoutError,))
coordinator.extend(batches(components))

_name = os.environ["TEST_PREFIX"]
_log = opened()
stamp = stamps_in(_log)


@components.declare(
    "Checker", "1.0", event="Checked", past=["Data_Received"], simultaneous_processes=3, max_results=2,
    max_attempts=2, retry_delay=float(os.environ.get("TEST_RETRY", "0")), max_losses=1,
    time_limit=float(os.environ.get("TEST_LIMIT", "60")), every=366 * 86400.0,
)  # fmt: skip
def check(work: Work) -> Iterator[Failure]:
    """Does what the item's directory says, such as `sleep 0.2`, `fail 3`, `raise`, `wait`."""
    stamp(work.item.id, "begin")
    what, _, number = (work.item.directory or "").partition(" ")
    if what == "sleep":
        time.sleep(float(number))
    elif what == "wait":
        _log.blpop([f"{_name}.go.{work.item.id}"], 60)
    elif what == "raise":
        raise ValueError("it raised")
    elif what == "exit":
        sys.exit(3)
    elif what == "infrastructure":
        raise TimeoutError("the archive is away")
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "not-yet":
        raise NotYet("no mail so far")
    elif what == "no-text":
        yield Failure(Path("page-1.jp2"), "hole", "Checker", "a hole")  # type: ignore[arg-type]
    elif what == "fail":
        work.say("it has holes")
        for place in range(int(number)):
            yield Failure(f"page-{place}", "hole", "Checker", f"hole {place}")
    stamp(work.item.id, "end")


@components.declare("Binder", "2.1", event="Bound", past=["Data_Received"], work_queue=2, every=366 * 86400.0)
def bind(work: Work) -> None:
    stamp(work.item.id, "begin")
    _log.blpop([f"{_name}.go.{work.item.id}"], 60)
    stamp(work.item.id, "end")


@components.declare(
    "Scanner", "1.0", event="Scanned", past=["Data_Received"], soft_time_limit=2, time_limit=20, every=366 * 86400.0
)
def scan(work: Work) -> None:
    """Longer than it may, where it has more to do."""
    time.sleep(float(work.item.directory or 0))


@components.declare(
    "Fetcher", "1.0", event="Fetched", past=["Data_Received"], max_attempts=3, retry_delay=[0.2, 0.5],
    every=366 * 86400.0,
)  # fmt: skip
def fetch(work: Work) -> None:
    """From an archive that is away."""
    stamp(work.item.id, "begin")
    raise TimeoutError("the archive is away")


@components.declare(
    "Swarm", "1.0", event="Swarmed", past=["Data_Received"], simultaneous_processes=20, every=366 * 86400.0
)
def swarm(work: Work) -> None:
    stamp(work.item.id, "begin")
    if work.item.directory == "wait":
        _log.blpop([f"{_name}.go.{work.item.id}"], 60)
    stamp(work.item.id, "end")


@components.declare("Indexer", "1.0", event="Indexed", old=["Indexed"], types=["edition"], every=366 * 86400.0)
def index(work: Work) -> None:
    stamp(work.item.id, "indexed")
    work.changed()
