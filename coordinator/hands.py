"""What a worker has in hand of ordinary tasks, and how it goes back once the worker is dead. For Redis brokers: others
see to that themselves.

kombu keeps all messages that are not acknowledged in one hash, without their holders, and gives them back after the
`visibility_timeout`, an hour. So

    note    a worker's channel writes the tag of each message that it holds into a set, its hand, in the very
            transactions in which kombu keeps that message and lets go of it
    keep    its warden gives the hand a deadline with each heartbeat, by the broker's clock
    return  any warden that finds a hand past its deadline puts back what is in it. One script a message, which does
            nothing unless the tag is still in that hand: whoever goes on after a crash, or beside another, puts nothing
            back twice, nor what somebody else was given since

A hand belongs to one life of a worker, and outlasts a warden that is started again. After a silence of its own a warden
holds nobody for dead for as long as a hand lasts: the broker may have been away for all. A worker that was only cut off
goes on with what was put back meanwhile: it then runs twice, as late acknowledgement allows.

What lies in a dead node's own queue goes to the app's default queue, doorbells aside, which are void.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from celery import Celery
from kombu.transport.redis import QoS
from kombu.utils.json import dumps, loads

from coordinator.doorbells import TASK, queue_of
from coordinator.ingress import BOUNDED
from coordinator.store import milliseconds, source

logger = logging.getLogger(__name__)

START = 3.0  # seconds that a warden takes to be started again, at most
_HAND, _HANDS = "coordinator.hand:", "coordinator.hands:"


class Noted(QoS):
    """Unacknowledged messages, as kombu has them, whose tags are noted in the set `hand` too."""

    def __init__(self, channel: Any, hand: str) -> None:
        super().__init__(channel)  # type: ignore[no-untyped-call]
        self._hand = hand
        self._taking: str | None = None

    def append(self, message: Any, delivery_tag: str) -> None:
        self._taking = delivery_tag
        super().append(message, delivery_tag)  # type: ignore[no-untyped-call]

    @contextmanager
    def pipe_or_acquire(self, pipe: Any = None, client: Any = None) -> Iterator[Any]:
        with super().pipe_or_acquire(pipe, client) as found:
            taking, self._taking = self._taking, None
            yield found.sadd(self._hand, taking) if taking else found

    def _remove_from_indices(self, delivery_tag: str, pipe: Any = None) -> Any:
        found = super()._remove_from_indices(delivery_tag, pipe)  # type: ignore[no-untyped-call]
        return found.srem(self._hand, delivery_tag)


def note(app: Celery, connection: Any, node: str) -> None:
    """Have what the consumer on this connection holds be noted from its first message on."""
    if connection.transport.driver_type != "redis" or not connection.default_channel.ack_emulation:
        return
    channel, incarnation = connection.default_channel, app.coordinator.incarnation
    try:
        with suppress(*connection.connection_errors):  # its warden says it, too
            keep(app, channel, f"{incarnation} {node}")
    except Exception as error:  # an ACL: then noting would be refused as well, and stop the consumer
        logger.warning("what %s has in hand is not noted, and comes back late if it dies: %s", node, error)
    else:
        channel._qos = Noted(channel, _HAND + incarnation)  # the event loop has asked it for one already


def keep(app: Celery, channel: Any, hand: str) -> list[str]:
    """`<incarnation> <node>` of each hand that nobody kept in time."""
    name, ttl = f"{channel.global_keyprefix}{_HANDS}{app.main}", milliseconds(lasts(app))
    found = channel.client.execute_command("EVAL", source("hand_keep"), 1, name, hand, ttl)
    return [one.decode() for one in found]


def lasts(app: Celery) -> float:
    """Seconds."""
    return float(app.coordinator.settings.node_ttl + START)


class Hands:
    """A thread beside the warden: keeps its worker's hand, and returns what dead ones held."""

    def __init__(self, app: Celery, node: str, incarnation: str) -> None:
        self._app = app
        self._hand = f"{incarnation} {node}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.run, name="hands", daemon=True)
        self._connection: Any = None
        self._channel: Any = None
        self._kept = self._since = float("-inf")
        self._failing = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is in hand now goes back once its time is over."""
        self._stop.set()
        self._thread.join(2.0)

    def run(self) -> None:
        pause = min(self._app.coordinator.settings.heartbeat, lasts(self._app) / 4)
        while not self._stop.is_set():
            self.step()
            self._stop.wait(pause)
        self.close()

    def step(self) -> None:
        """Never raises."""
        try:
            over = self._keep()
            for hand in over:
                self.give_back(hand, over)
        except Exception as error:
            if not self._failing:
                logger.warning("what %s has in hand cannot be kept: %s; trying again", self._hand, error)
            self._failing = True
            self.close()
        else:
            self._failing = False

    def _keep(self) -> list[str]:
        """Whose hands are to be returned."""
        began, lasting = time.monotonic(), lasts(self._app)
        over = keep(self._app, self._connected(), self._hand)
        now = time.monotonic()
        if began - self._kept > lasting / 2:
            self._since = now
        self._kept = now
        return over if now - self._since >= lasting else []

    def give_back(self, hand: str, over: list[str]) -> None:
        """`over`: hands that are past their time, this one among them. Killed anywhere in it, the next goes on; as
        does the next step where it takes long, since the own hand is to be kept.
        """
        client = self._connected().client
        incarnation, _, node = hand.partition(" ")
        every = {one.decode() for one in client.zrange(_HANDS + self._app.main, 0, -1)}
        name_lives = node in {one.partition(" ")[2] for one in every - set(over)}
        until, number = time.monotonic() + lasts(self._app) / 8, 0
        for done in self._returns(incarnation, "" if name_lives else queue_of(node).name):
            number += done
            if time.monotonic() >= until:
                return
        client.zrem(_HANDS + self._app.main, hand)
        logger.warning("%s has nothing in hand any more: %d messages went back to their queues", node, number)

    def _returns(self, incarnation: str, forsaken: str) -> Iterator[int]:
        """A message at each turn. `forsaken`: an own queue that nobody consumes, or none."""
        channel = self._connected()
        for tag in self.tags(incarnation):
            yield self.put_back(incarnation, tag, channel.client.hget(channel.unacked_key, tag) or b"", forsaken)
        for step in channel.priority_steps if forsaken else ():
            yield from self._empty(f"{forsaken}{channel.sep}{step}" if step else forsaken, forsaken)

    def tags(self, incarnation: str) -> list[bytes]:
        return sorted(self._connected().client.smembers(_HAND + incarnation))

    def put_back(self, incarnation: str, tag: bytes, kept: bytes, forsaken: str) -> int:
        """1 where this call did it. `kept`: the message as kombu keeps it; `forsaken`: a queue that nobody consumes."""
        channel = self._connected()
        keys, text = [_HAND + incarnation, channel.unacked_key, channel.unacked_index_key], ""
        if kept:
            message, exchange, routing_key = loads(kept.decode())
            message.setdefault("headers", {})["redelivered"] = True
            message["properties"]["delivery_info"]["redelivered"] = True
            lists, text = self._way(message, exchange, routing_key, forsaken)
            keys += lists
        return self._run("hand_return", keys, tag, kept, text)

    def _empty(self, name: str, own: str) -> Iterator[int]:
        """Move what is in this list of a dead node's own queue, the oldest first; what is no message stays."""
        before: list[bytes] = []
        while (found := self._oldest(name)) != before:
            before = found
            for stored in reversed(found):
                try:
                    lists, text = self._way(loads(stored.decode()), "", own, own)
                except (ValueError, TypeError, LookupError, AttributeError):
                    continue
                yield self._run("hand_move", [name, *lists], stored, text)
        if before:
            logger.warning("%s: what is no message of Celery's stays there: %d entries", own, len(before))

    def _oldest(self, name: str) -> list[bytes]:
        found = self._connected().client.execute_command("LRANGE", self._prefix + name, -1000, -1)
        return cast(list[bytes], found)

    def _way(self, message: Any, exchange: str, routing_key: str, forsaken: str) -> tuple[list[str], str]:
        """To which lists, and as what: where it came from, else to the default queue. No lists: it is void."""
        channel = self._channel
        queues = list(channel._lookup(exchange, routing_key))
        if not queues or forsaken in queues:
            if (message.get("headers") or {}).get("task") == TASK:
                return [], ""
            queues = [self._app.conf.task_default_queue]
            message["properties"]["delivery_info"] |= {"exchange": "", "routing_key": queues[0]}
        step = channel._get_message_priority(message, reverse=False)
        return [channel._q_for_pri(queue, step) for queue in queues], dumps(message)

    def _run(self, script: str, keys: list[str], *args: str | bytes) -> int:
        names = [self._prefix + key for key in keys]
        return int(self._connected().client.execute_command("EVAL", source(script), len(names), *names, *args))

    @property
    def _prefix(self) -> str:
        return str(self._connected().global_keyprefix)

    def _connected(self) -> Any:
        if self._channel is None:
            self._connection = self._app.connection_for_read(transport_options=BOUNDED)
            self._connection.connect()
            self._channel = self._connection.channel()
            for queue in self._app.amqp.queues.values():
                if queue.exchange.name:  # its type decides where a message of it goes
                    queue.exchange(self._channel).declare()
        return self._channel

    def close(self) -> None:
        """Let go of the connection; the next call makes another."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.release()


def open_hands(app: Celery, node: str, incarnation: str) -> list[Hands]:
    """Empty where the broker sees to it."""
    with app.connection_for_read() as connection:
        return [Hands(app, node, incarnation)] if connection.transport.driver_type == "redis" else []
