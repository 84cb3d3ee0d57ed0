"""How the tests use `tests.harness.apps.mishaps`."""

from typing import Any

from coordinator import Job
from tests.harness.fleet import Fleet, Worker
from tests.harness.installation import Stamp

MODULE = "tests.harness.apps.mishaps"


def start(
    fleet: Fleet, name: str = "one", concurrency: int = 2, pool: str = "prefork", fresh: bool = False, **environ: str
) -> Worker:
    """A node that knows the mishaps."""
    return fleet.worker(name, concurrency, "-I", MODULE, pool=pool, fresh=fresh, **environ)


def tasks_of(fleet: Fleet) -> Any:
    return fleet.tasks(MODULE)


def marks(fleet: Fleet, *names: str) -> list[str]:
    """What the tasks (of these names) did, in Redis's order: `<name> <begin|end|undone|…>`."""
    return [f"{stamp.name} {stamp.what}" for stamp in fleet.stamps() if not names or stamp.name in names]


def cause(job: Job) -> str:
    """The type of a job's error."""
    return str((job.error or {}).get("type"))


def gaps(stamps: list[Stamp]) -> list[float]:
    """Seconds from each to the next."""
    return [(stamps[i + 1].at - stamps[i].at) / 1e6 for i in range(len(stamps) - 1)]


def double_faults(fleet: Fleet, job_id: str) -> list[str]:
    return [line for line in fleet.logs().splitlines() if "double fault" in line and job_id in line]
