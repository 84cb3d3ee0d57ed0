"""A store of the tests, and a submit through it."""

import pytest

from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from coordinator.errors import CoordinatorError, StoreUnavailable
from tests.harness.hand_node import sketch


def store_of(url: str, **settings: object) -> Store:
    return Store(Settings.load({"url": url, "prefix": "t", **settings}, {}, {}))


def submit(store: Store, job_id: str) -> bytes:
    return bytes(store.step("job_submit", *sketch("a", job_id=job_id).step_args(), job_id=job_id)[0])


def put(store: Store, job_id: str) -> bool:
    """Whether it is in its line, by this submit or an earlier one; False while Redis is away."""
    try:
        return submit(store, job_id) in (b"queued", b"duplicate")
    except StoreUnavailable:
        return False


def fault(url: str) -> str:
    """What is wrong with an address."""
    with pytest.raises(CoordinatorError) as raised:
        submit(store_of(url, timeout=10), "one")
    return str(raised.value)
