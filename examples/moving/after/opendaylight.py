"""What OpenDaylight's JobCoordinator does: jobs of a key in sequence, others in parallel, retries, rollback."""

from celery.result import AsyncResult

from coordinator import Submission
from examples.moving.shop import app, coordinator
from examples.moving.work import work


@app.task
def write(port: str, vlan: str) -> str:
    """One transaction. The tag 13 is taken."""
    written = work(f"{port}/{vlan}")
    if vlan == "13":
        raise ValueError(f"the tag {vlan} is taken")
    return written


@app.task
def bind(port: str, vlan: str) -> AsyncResult:
    """The main worker: it returns what it waits for."""
    return write.delay(port, vlan)


@app.task
def unbind(port: str, vlan: str) -> str:
    """The rollback worker."""
    return work(f"{port}/{vlan} is unbound")


def enqueue(port: str, vlan: str) -> Submission:
    undo = unbind.s(port, vlan)
    return coordinator.submit(port, bind.s(port, vlan), max_attempts=3, retry_delay=[0.5, 1], rollback=undo)
