"""A resource lock: two apps run whole chains over one resource, one chain at a time.

The lane of the resource is the provider, and the orders are its consumers. An order holds the resource from its first
step to its last. A waiting order is only a record and occupies no worker. An operator sees the line and may take an
order out.

Run it: python examples/resource_lock.py
"""

import time

from celery import Celery, chain
from onemachine import Machine, say

from coordinator import Coordinator, current_job

RESOURCE = "database/stock"

loader = Celery("loader")
loading = Coordinator(loader)
report = Celery("report")
reporting = Coordinator(report)


def step(text: str) -> None:
    job = current_job()
    assert job
    say(f"{job.id}: {text}")
    time.sleep(0.1)


@loader.task(name="loader.fetch")
def fetch(rows: int) -> int:
    step("fetch")
    return rows


@loader.task(name="loader.load")
def load(rows: int) -> int:
    step(f"load {rows} rows")
    return rows


@loader.task(name="loader.index")
def index(rows: int) -> str:
    step("index")
    return f"{rows} rows loaded"


@report.task(name="report.freeze")
def freeze() -> None:
    step("freeze")


@report.task(name="report.read")
def read(_: None) -> str:
    step("read")
    return "report read"


def main() -> None:
    with Machine() as machine:
        machine.workers("resource_lock:loader", loading, "loader")
        machine.workers("resource_lock:report", reporting, "report")
        loading.pause(RESOURCE, why="until all stand in line", by="example")
        ids = ["load-1", "report-1", "load-2", "report-2"]
        for job_id in ids:
            if job_id.startswith("load"):
                loading.submit(RESOURCE, chain(fetch.s(1000), load.s(), index.s()), job_id=job_id)
            else:
                reporting.submit(RESOURCE, chain(freeze.s(), read.s()), job_id=job_id)
        machine.say(f"in line: {', '.join(loading.lane(RESOURCE).jobs)}")
        machine.say(loading.why("report-1").sentence)
        machine.say(f"an operator takes load-2 out: {loading.cancel('load-2', why='not needed today', by='example')}")
        loading.resume(RESOURCE, why="all stand in line", by="example")
        for job_id in ids:
            job = loading.wait(job_id, 60)
            machine.say(f"{job_id} is {job.state}" + (f": {job.result}" if job.result else ""))
        machine.say(f"then the lane is {loading.lane(RESOURCE).state}")


if __name__ == "__main__":
    main()
