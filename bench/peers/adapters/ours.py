"""celery-coordinator: jobs in portions of 500, and a worker without any flags but its two processes."""

from celery import Celery

from bench.peers import body
from coordinator import Coordinator

app = Celery("peers", broker=f"{body.URL}/1")
app.conf.update(task_ignore_result=True, worker_concurrency=2, coordinator_url=f"{body.URL}/0")
coordinator = Coordinator(app)

WORKER = ("celery", "-A", __name__, "worker")
PORTION = 500


@app.task
def work(key: int, number: int) -> None:
    body.run()


def send(jobs: list[tuple[int, int]]) -> None:
    coordinator.submit_many((f"key/{key}", work.s(key, number)) for key, number in jobs)
