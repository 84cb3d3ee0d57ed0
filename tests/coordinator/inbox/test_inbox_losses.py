"""An inbox whose broker is killed, loses a reply, or is ended while the inbox listens."""

import inspect
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from coordinator.inbox.inbox import Inbox
from tests.coordinator.inbox.senders import QUEUE, broker, inbox_of, key, letters, plain, push
from tests.harness.installation import Installation
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_for_count, wait_until

SCRIPTS = sorted(Path(inspect.getfile(Inbox)).parent.glob("*.lua"))


@contextmanager
def running(inbox: Inbox[Any]) -> Iterator[None]:
    """Until the body ends; else that of a test that failed says in the next one that its broker is gone."""
    inbox.start()
    try:
        yield
    finally:
        inbox.stop()


def test_a_broker_killed_in_the_middle_loses_no_request(
    own_redis: RedisServer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent = [f"r{number}" for number in range(400)]
    given: list[str] = []
    with Installation(own_redis, prefix) as apps, broker(apps) as client:
        inbox = inbox_of(apps, lambda request: given.append(request.id))
        client.lpush(key(apps), *[json.dumps({"name": "a", "id": name}) for name in sent])
        with running(inbox):
            wait_for_count(lambda: len(given), 101)
            own_redis.kill()
            wait_until(lambda: "trying again" in caplog.text)
            assert set(given) < set(sent)
            own_redis.start()
            wait_for_count(lambda: len(given), len(sent))  # one after another, each with its writes to the disk
            wait_until(lambda: not client.exists(key(apps), key(apps, ".taken")))
    assert set(given) == set(sent)
    assert len(given) <= len(sent) + 1


@pytest.mark.parametrize("request_of", ["take.lua", "refuse.lua", "ZREM", "BLMOVE"])
def test_a_lost_reply_loses_no_request_and_doubles_no_letter(apps: Installation, proxy: Proxy, request_of: str) -> None:
    with broker(apps) as client:
        known = {path.name: client.script_load(path.read_text()) for path in SCRIPTS}
    app = Celery("proxied", broker=proxy.url(1), set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": f"{apps.prefix}."}
    given: list[str | None] = []
    dead = inbox_of(apps, lambda request: None, app, "dead")
    plain(apps, {"name": "of the dead", "id": "0"})
    dead._requests.take(1)
    dead._requests.close()
    plain(apps, {"name": "a", "id": "1"})
    push(apps, "rubbish")
    plain(apps, {"name": "b", "id": "2"})
    proxy.lose_reply(containing=known.get(request_of, request_of).encode())
    inbox = inbox_of(apps, lambda request: given.append(request.id), app)
    with broker(apps) as client:
        wait_until(
            lambda: inbox.step() >= 0 and proxy.lost.is_set() and not client.exists(key(apps), key(apps, ".taken"))
        )
    assert sorted(set(map(str, given))) == ["0", "1", "2"]
    assert len(given) <= 4
    assert letters(apps) == 1
    inbox._requests.close()


def test_an_inbox_stops_at_once_while_it_listens(apps: Installation) -> None:
    inbox = inbox_of(apps, lambda request: None)
    with running(inbox), broker(apps) as client:
        wait_until(lambda: any(one["cmd"] == "blmove" for one in client.client_list()))
        began = time.monotonic()
    assert time.monotonic() - began < 10
    assert not [thread for thread in threading.enumerate() if thread.name == f"inbox-{QUEUE}"]
