"""The outbox of a process, without a backend: what it keeps, gives up and starts."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from celery import Celery

from coordinator.core.runner import outbox as module
from coordinator.core.runner.outbox import Outbox, Owed
from coordinator.core.runner.results import JobEnd
from coordinator.core.store.client import Store
from coordinator.errors import StoreUnavailable
from tests.harness.waiting import wait_until


class Away:
    """A store that answers only from its third call on."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def step(self, *call: Any) -> int:
        self.calls.append(call)
        if len(self.calls) < 3:
            raise StoreUnavailable("away")
        return 1


def end_of(job_id: str) -> JobEnd:
    return JobEnd(cast(Any, SimpleNamespace(id=job_id)), {}, None)


def test_rounds_that_break_off_leave_room_for_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "send_many", lambda app, ends: {end.job.id for end in ends})
    store = Away()
    outbox = Outbox(cast(Celery, SimpleNamespace(main="shop")), cast(Store, store))
    for number in range(4):
        before = len(store.calls)
        outbox.add(end_of(f"j{number}"), module._ROOM)
        wait_until(lambda before=before: len(store.calls) > before)
        assert outbox.flush(5)
    assert [call[2] for call in store.calls] == ["j0", "j1", "j2", "j3"]


def test_what_finds_no_room_is_left_to_maintenance(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, sent = threading.Event(), list[str]()

    def hanging(app: object, ends: list[JobEnd]) -> set[str]:
        hangs.wait(10)
        sent.extend(end.job.id for end in ends)
        return {end.job.id for end in ends}

    monkeypatch.setattr(module, "send_many", hanging)
    store = SimpleNamespace(step=lambda *call: 1)
    outbox = Outbox(cast(Celery, SimpleNamespace(main="shop")), cast(Store, store))
    outbox.add(end_of("first"), 1)
    wait_until(lambda: not outbox._queue)
    outbox.add(end_of("fits"), module._ROOM)
    outbox.add(end_of("too much"), 1)
    hangs.set()
    assert outbox.flush(5)
    assert sent == ["first", "fits"]


def test_an_end_waits_until_redis_tells_what_coalesced_into_the_job_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent, asked = list[tuple[str, tuple[str, ...]]](), list[str]()

    def read(command: str, key: str, *_: int) -> list[bytes]:
        asked.append(key)
        if len(asked) == 1:
            raise StoreUnavailable("away")
        return [b"other"]

    def sending(app: object, ends: list[JobEnd]) -> set[str]:
        sent.extend((end.job.id, end.others) for end in ends)
        return {end.job.id for end in ends}

    monkeypatch.setattr(module, "send_many", sending)
    calls = SimpleNamespace(step=lambda *call: 1, read=read, key=lambda kind, name: f"{kind}:{name}")
    store = SimpleNamespace(
        **vars(calls), looking=lambda *call: call, read_many=lambda calls: [[[b""] * 2]]
    )  # it coalesced: its record keeps no call
    outbox = Outbox(cast(Celery, SimpleNamespace(main="shop")), cast(Store, store))
    outbox.add(end_of("coalesced")._replace(coalesces=True), 1)
    outbox.add(end_of("plain"), 1)
    assert outbox.flush(5)
    assert sent == [("plain", ()), ("coalesced", ("other",))]
    assert asked == ["aliases:coalesced"] * 2


def test_an_end_with_links_is_told_at_once_and_what_maintenance_may_have_begun_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, sent, told = [0.0], list[str](), list[tuple[str, ...]]()

    def slow(app: object, ends: list[JobEnd]) -> set[str]:
        sent.extend(end.job.id for end in ends)
        clock[0] += 3 if ends else 0  # a broker that takes its time
        return {end.job.id for end in ends}

    monkeypatch.setattr(module, "send_many", slow)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda _: None))
    store = SimpleNamespace(step=lambda _, app, *ids: told.append(ids) or 0)
    outbox = Outbox(cast(Celery, SimpleNamespace(main="shop")), cast(Store, store))
    link = {"task": "shop.tell", "args": [], "kwargs": {}, "options": {}}
    ends = [end_of("plain"), *(end_of(name)._replace(spec=cast(Any, {"link": [link]})) for name in ("a", "b", "c"))]
    outbox.send([Owed(4.0, 1, end) for end in ends])
    assert sent == ["plain", "a"]
    assert told == [("plain",), ("a",)]
