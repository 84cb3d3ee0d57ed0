"""The interfaces of a port: jobs that depend on each other in sequence, independent ones in parallel, and rollback.

Every job of a port has the port's name as its key: the port is created first, then its interfaces, in that order. Two
ports are two lanes and do not wait for each other. A job that fails for good is rolled back in its place, and then the
lane goes on.

Run it: python examples/interfaces_of_a_port.py
"""

import time

from celery import Celery
from onemachine import Machine, say

from coordinator import Coordinator, current_job

app = Celery("interfaces_of_a_port")
coordinator = Coordinator(app)


@app.task
def create(port: str) -> None:
    say(f"{port}: created")
    time.sleep(1)


@app.task
def bind(port: str, interface: str) -> None:
    """Bind an interface. One of them always fails."""
    job = current_job()
    assert job
    say(f"{port}: {interface} is bound, attempt {job.attempt}")
    if interface == "vlan-13":
        raise ValueError("the tag is taken")


@app.task
def unbind(port: str, interface: str) -> None:
    job = current_job()
    assert job
    assert job.undoing
    reason = (job.undoing.error or {}).get("message")
    say(f"{port}: {interface} is unbound again, {reason}")


def configure(port: str) -> list[str]:
    """Submit the jobs of a port. Returns their ids."""
    ids = [coordinator.submit(port, create.s(port)).id]
    for interface in ("vlan-12", "vlan-13", "vlan-14"):
        undo = unbind.s(port, interface)
        made = coordinator.submit(port, bind.s(port, interface), max_attempts=2, retry_delay=0.1, rollback=undo)
        ids.append(made.id)
    return ids


def main() -> None:
    with Machine() as machine:
        machine.workers("interfaces_of_a_port", coordinator, "one", "two")
        ports = {port: configure(port) for port in ("port-1", "port-2")}
        jobs = {port: [coordinator.wait(job_id, 60) for job_id in ids] for port, ids in ports.items()}
        for port, done in jobs.items():
            machine.say(f"{port}: {', '.join(job.state for job in done)}")
        together = set(machine.lines[:2]) == {f"{port}: created" for port in ports}
        machine.say(f"both ports were created at the same time: {'yes' if together else 'no'}")


if __name__ == "__main__":
    main()
