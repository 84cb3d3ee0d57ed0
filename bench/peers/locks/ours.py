from contextlib import AbstractContextManager
from typing import Any

from bench.peers import body
from coordinator import Coordinator

coordinator = Coordinator(url=f"{body.URL}/0")


def lock(name: str) -> AbstractContextManager[Any]:
    return coordinator.lock(name, blocking_timeout=300)
