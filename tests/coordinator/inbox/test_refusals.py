"""What the inbox refuses is put aside in a bounded place, however large it is and however much of it comes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.core.store.times import EPOCH
from coordinator.inbox import message
from coordinator.inbox.inbox import Inbox
from coordinator.inbox.queue import UNREADABLE
from coordinator.scheduler.entry import tick_id
from tests.coordinator.inbox.senders import broker, inbox_of, key, plain, push, put_aside
from tests.harness.installation import Installation

LARGE = 8 * 1024 * 1024


@pytest.fixture
def inbox(apps: Installation) -> Iterator[Inbox[Any]]:
    inbox = inbox_of(apps, apps.shop.take_in)
    yield inbox
    inbox._requests.close()
    for lane in apps.coordinator.lanes():
        for job_id in lane.jobs:
            apps.coordinator.cancel(job_id)


def test_a_message_of_many_megabytes_is_cut_by_redis_and_holds_up_no_other(
    apps: Installation, inbox: Inbox[Any]
) -> None:
    push(apps, json.dumps({"name": "\u00fc" * LARGE}, ensure_ascii=False))
    plain(apps, {"name": "good", "id": "after"})
    taken = inbox._requests.take(1)
    assert taken
    assert (len(taken.stored) < message.MOST + 100, taken.size > LARGE) == (True, True)
    inbox._process(taken)
    inbox.step()
    [letter] = put_aside(apps)
    assert f"has {taken.size} bytes" in letter["reason"]
    assert (letter["size"], letter["encoding"]) == (taken.size, "utf-8")
    assert letter["original"].startswith('{"name": "\u00fc')
    assert apps.coordinator.job("after").state == "ready" or apps.coordinator.job("after").state == "waiting"
    with broker(apps) as client:
        assert not client.exists(key(apps), key(apps, ".taken"))


def test_a_padded_object_is_refused_though_its_beginning_is_one(apps: Installation, inbox: Inbox[Any]) -> None:
    push(apps, json.dumps({"name": "padded"}) + " " * LARGE)
    inbox.step()
    assert [letter["size"] > LARGE for letter in put_aside(apps)] == [True]
    assert not apps.coordinator.counts()["created"]


def test_a_letter_takes_no_more_than_twice_the_bytes_of_its_message(apps: Installation, inbox: Inbox[Any]) -> None:
    push(apps, b"\x01" * message.MOST)
    inbox.step()
    with broker(apps) as client:
        [letter] = client.lrange(key(apps, UNREADABLE), 0, -1)
    assert len(letter) < 2 * message.MOST + 1000
    assert json.loads(letter)["encoding"] == "base64"


def test_only_the_last_letters_are_kept_and_no_rubbish_drives_a_request_out(
    apps: Installation, inbox: Inbox[Any]
) -> None:
    plain(apps, {"name": "a", "id": str(tick_id("sync/a", EPOCH))})
    with broker(apps) as client:
        client.rpush(key(apps, UNREADABLE), *[json.dumps({"old": i}) for i in range(1500)])
    push(apps, "rubbish")
    inbox.step()
    inbox.step()
    kept = put_aside(apps)
    assert "reserved" in kept[0]["reason"]
    assert len(kept[1:]) == 1000
    assert kept[-1]["original"] == "rubbish"
