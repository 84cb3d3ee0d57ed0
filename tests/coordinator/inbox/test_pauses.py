"""How long an inbox rests: while its broker is away, and behind each request."""

from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from pydantic import BaseModel, ConfigDict

from coordinator.core.store.client import Store
from coordinator.inbox import inbox as module
from coordinator.inbox.inbox import Inbox
from coordinator.inbox.queue import TakenMessage


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str


def inbox_at(store: Store, **queue: Any) -> Inbox[Request]:
    """An inbox whose queue does as it is told here."""
    inbox = Inbox(Celery("shop", set_as_current=False), "q", Request, lambda _: None, "one", lambda: store)
    inbox.__dict__["_requests"] = SimpleNamespace(close=lambda: None, settle=lambda _: None, **queue)
    return inbox


def test_pauses_double_up_to_five_seconds_while_the_broker_is_away_and_begin_anew(store: Store) -> None:
    away = [True] * 9 + [False, True]

    def take(_: float) -> None:
        if away.pop(0):
            raise OSError("away")

    inbox = inbox_at(store, take=take)
    pauses = [inbox.step() for _ in range(11)]
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5, 0, 0.2])


def test_an_inbox_rests_for_as_long_as_a_request_took_and_half_a_second_at_most(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, took = 1000.0, iter([0.1, 30.0])
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))

    def take(_: float) -> TakenMessage:
        nonlocal now
        now += next(took)
        return TakenMessage("tag", b'{"name": "x"}', b"tag", 13, False)

    inbox = inbox_at(store, take=take)
    assert [inbox.step() for _ in range(2)] == pytest.approx([0.1, 0.5])
