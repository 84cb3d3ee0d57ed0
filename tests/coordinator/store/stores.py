"""A store of the tests, and a submit through it."""

from coordinator.settings import Settings
from coordinator.store.client import Store
from tests.harness.hand_node import sketch


def store_of(url: str, **settings: object) -> Store:
    return Store(Settings.load({"url": url, "prefix": "t", **settings}, {}, {}))


def submit(store: Store, job_id: str) -> bytes:
    return bytes(store.step("job_submit", *sketch("a", job_id=job_id).step_args(), job_id=job_id)[0])
