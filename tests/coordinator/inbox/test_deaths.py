"""Whose deaths are counted together, while a message is handled."""

from contextlib import ExitStack

import pytest

from coordinator.core.fleet import processes
from coordinator.core.store.client import Store
from coordinator.inbox.deaths import MOST, Deadly, counted
from coordinator.inbox.queue import TakenMessage


def again(message: bytes) -> TakenMessage:
    """One that was taken before, and not settled."""
    return TakenMessage("tag", message, b"tag/1 " + message, len(message), True)


@pytest.mark.parametrize(
    ("queue", "message", "dies"), [("q", b"one", True), ("other", b"one", False), ("q", b"two", False)]
)
def test_deaths_count_for_their_own_message_in_their_own_queue(
    store: Store, monkeypatch: pytest.MonkeyPatch, queue: str, message: bytes, dies: bool
) -> None:
    with ExitStack() as dead:
        for number in range(MOST):
            monkeypatch.setattr(processes, "identity", lambda number=number: f"{number}.1")
            for _ in range(2):  # a process that takes it twice dies once
                dead.enter_context(counted(store, "q", "node", again(b"one")))
        monkeypatch.setattr(processes, "identity", lambda: "99.1")
        if dies:
            with pytest.raises(Deadly), counted(store, queue, "node", again(message)):
                pass
        else:
            with counted(store, queue, "node", again(message)):
                pass
