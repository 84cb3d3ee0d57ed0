"""A plain Celery app, without the coordinator: one task for each of the peers, which all do the same.

Each peer has what its documentation offers for safety: late acknowledgement, and a message that comes again when its
process dies. Only celery-once and celery-singleton have their locks as they come.
"""

import os
import time

import redis
from celery import Celery
from celery_once import QueueOnce
from celery_singleton import Singleton

from proof.witness import Witness

STORE = os.environ["COORDINATOR_URL"]
LOCKED = 10.0  # s that a lock of redis-py lasts: longer than any body

app = Celery("peers", broker=os.environ["TEST_BROKER"], backend=os.environ["TEST_BACKEND"])
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True
app.conf.worker_prefetch_multiplier = 1
app.conf.ONCE = {"backend": "celery_once.backends.Redis", "settings": {"url": STORE}}
app.conf.singleton_backend_url = STORE
witness = Witness.here()
client = redis.Redis.from_url(STORE)


def body(job: str, key: str, seconds: float) -> None:
    """As `proof.shop.work`, but the cell of the key can refuse nobody: a peer gives no fence. The instant of the begin
    stands for one, by which the checkers tell who came later."""
    about = {"job": job, "fence": time.time_ns() // 1000, "step": 0}
    witness.note("invoke", "run", keys=[key], **about)
    time.sleep(seconds)
    witness.note("info", "write", cell=key, fence=about["fence"], what=f"{job} 0", outcome="applied")
    time.sleep(seconds / 4)
    witness.note("ok", "run", **about)


@app.task(shared=False)
def plain(job: str, key: str, seconds: float) -> None:
    body(job, key, seconds)


@app.task(shared=False)
def locked(job: str, key: str, seconds: float) -> None:
    with client.lock(key, timeout=LOCKED):
        body(job, key, seconds)


@app.task(shared=False, base=QueueOnce, once={"keys": ["key"]})
def once(job: str, key: str, seconds: float) -> None:
    body(job, key, seconds)


@app.task(shared=False, base=Singleton, unique_on=["key"])
def singleton(job: str, key: str, seconds: float) -> None:
    body(job, key, seconds)
