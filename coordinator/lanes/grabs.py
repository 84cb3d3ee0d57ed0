"""The instances of grabs as Redis has them: who works on each, or did, and how it ended.

Each instance is a lane of its own, and its winner holds it as a lock in plain code. A record in Redis remembers the
winner, and the end for as long as `keep` says. An instance is *abandoned* while its record says that it runs and nobody
holds its lane: the next one that asks takes it over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from kombu.utils.json import loads

from coordinator.errors import InvalidJob, StoreRefused, StoreUnavailable
from coordinator.jobs.validation import printable
from coordinator.store.client import Store
from coordinator.store.times import instant
from coordinator.store.values import Json

KEEP = 30 * 86400.0
LONGEST = 200
OnLosing = Literal["incomplete", "complete", "wait"]
State = Literal["", "running", "complete", "incomplete", "waiting", "failed", "abandoned", "stopped"]


class Winner(NamedTuple):
    """The process that works on an instance, or did. `node`: the worker that it belongs to, or ""."""

    identifier: str
    host: str
    pid: int
    node: str


@dataclass(frozen=True, slots=True)
class Grabbed:
    """An instance as Redis has it. `state`: running, complete, failed, abandoned, or "" where nobody grabbed it.

    `value`: the result, or the reason of the failure.
    """

    key: str
    instance: str
    state: State
    winner: Winner | None = None
    attempt: int = 0
    fence: int = 0
    started: datetime | None = None
    ended: datetime | None = None
    value: Json = None


def lane_of(key: str, instance: str) -> str:
    """The lane of an instance. No other lane has such a key, since callers' keys have no control characters."""
    return f"grab\x1f{key}\x1f{instance}"


def checked(what: str, text: object) -> str:
    """A name of a grab: 1 to 200 characters, none of them a control character. An instant is written in UTC."""
    if isinstance(text, datetime):
        text = (text if text.tzinfo else text.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    elif isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    if not isinstance(text, str) or not printable(text) or len(text) > LONGEST:
        raise InvalidJob(
            f"the {what} of a grab is text of 1 to {LONGEST} characters without control characters, not "
            f"{str(text)[:60]!r}"
        )
    return text


def look(store: Store, key: str, instance: str) -> Grabbed:
    """The instance as it is now."""
    return found(key, instance, store.step("grab_look", lane_of(key, instance)))


def all_of(store: Store, key: str | None, most: int) -> list[Grabbed]:
    """The instances of a key, or of all keys, the latest first; at most so many of each key."""
    keys = [one.decode() for one in store.read("ZRANGE", store.key("grabs"), 0, -1)] if key is None else [key]
    instances = [
        (one, instance.decode())
        for one in sorted(keys)
        for instance in store.read("ZRANGE", store.key("grabs", one), 0, most - 1, "REV")
    ]
    replies = store.step_many("grab_look", [(lane_of(*one),) for one in instances]) if instances else []
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    both = [found(*one, reply) for one, reply in zip(instances, replies, strict=True)]
    return [one for one in both if one.state]


@contextmanager
def listening(store: Store, key: str, instance: str) -> Iterator[Callable[[float], None]]:
    """Give a call that waits for a notice of the instance's end, so many seconds at most; also while Redis is away."""
    client = store.connect(store.settings.timeout)
    with client.pubsub(ignore_subscribe_messages=True) as notices:
        subscribed = False

        def listen(seconds: float) -> None:
            nonlocal subscribed
            since = time.monotonic()
            try:
                if not subscribed:
                    store.call(lambda: notices.subscribe(store.key("grabbed", lane_of(key, instance))))
                    subscribed = True
                    return  # it may have ended just before
                store.call(lambda: notices.get_message(timeout=seconds))
            except (StoreUnavailable, StoreRefused):
                time.sleep(max(0.0, min(0.2, seconds) - (time.monotonic() - since)))

        yield listen
    client.close()


def found(key: str, instance: str, reply: list[bytes]) -> Grabbed:
    state, fence, attempt, about, started, ended, value = (part.decode() for part in reply)
    winner = Winner(**loads(about)) if about else None
    times = instant(float(started)) if started else None, instant(float(ended)) if ended else None
    shown: State = state  # type: ignore[assignment]
    return Grabbed(
        key, instance, shown, winner, int(attempt or 0), int(fence or 0), *times, loads(value) if value else None
    )
