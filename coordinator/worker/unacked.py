"""Ordinary tasks of a dead worker go back to their queues. For Redis brokers; any other broker does this by itself.

kombu keeps all messages that are not acknowledged in one hash. It does not note which worker holds which of them, and
gives them back after the `visibility_timeout`, an hour. Therefore:

    note    a worker's channel writes the tag of each message that it holds into a set of the worker's own, in the
            same transactions in which kombu stores that message and forgets it
    keep    the worker's errands give that set a deadline every few seconds, by the broker's clock
    return  the errands of any node that find a set past its deadline put its messages back, one script a message,
            unless the clock of that worker says that it lives

The set decides: a message goes back only while its tag is in the set and kombu stores the same message under it. So
errands that continue after a crash, or work beside others, return nothing twice, and take no message from a worker that
received it since.

A worker is one life of a process, `<incarnation> <node>`, and its set outlasts errands that start again. The time
is the broker's. After a silence of their own, they declare no worker dead for as long as a deadline lasts, since
the broker may have been away for all. A worker that was only cut off goes on with messages that were returned
meanwhile: they run twice, as late acknowledgement allows.

The messages in a dead node's own queue go to the app's default queue. Doorbells among them are void and are dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import resources
from typing import Any, NotRequired, Protocol, TypedDict, cast

from celery import Celery
from kombu.connection import Connection
from kombu.message import Message
from kombu.transport.redis import Channel, QoS
from kombu.transport.virtual import QoS as VirtualQoS
from kombu.utils.json import dumps, loads

from coordinator.broker.doorbells import TASK, queue_of
from coordinator.broker.transport import BOUNDED, is_redis
from coordinator.fleet.nodes import Nodes
from coordinator.store.times import milliseconds
from coordinator.threads import StoppableThread

logger = logging.getLogger(__name__)

START = 3.0  # seconds that errands take to be started again; where they take longer, the clock speaks for the worker
# The broker's keys keep their old names, since workers of an older version use them.
_TAGS, _WORKERS = "coordinator.hand:", "coordinator.hands:"


class Pipe(Protocol):
    """The part of redis-py's pipeline that is used here."""

    def sadd(self, name: str, *values: str) -> Pipe: ...

    def srem(self, name: str, *values: str) -> Pipe: ...


class DeliveryInfo(TypedDict):
    exchange: str
    routing_key: str
    redelivered: NotRequired[bool]


class Properties(TypedDict):
    delivery_info: DeliveryInfo


class Stored(TypedDict):
    """A message as kombu stores it, as far as it is read here."""

    headers: NotRequired[dict[str, str | bool | None] | None]
    properties: Properties


class Noted(QoS):
    """kombu's store of unacknowledged messages, which also keeps their tags in the set `tags`."""

    def __init__(self, channel: Channel, tags: str) -> None:
        super().__init__(channel)  # type: ignore[no-untyped-call]
        self._tags = tags
        self._taking: str | None = None

    def append(self, message: Message, delivery_tag: str) -> None:
        """kombu has taken the message off its queue. Where the broker is too full to note it, it runs unnoted: else it
        would be lost, and the worker with it.
        """
        self._taking = delivery_tag
        try:
            super().append(message, delivery_tag)  # type: ignore[no-untyped-call]
        except self.channel.connection.channel_errors as error:
            if type(error).__name__ != "OutOfMemoryError":
                raise
            logger.warning("the broker is full: message %s runs, and is lost if its worker dies", delivery_tag)
            VirtualQoS.append(self, message, delivery_tag)

    @contextmanager
    def pipe_or_acquire(self, pipe: Pipe | None = None, client: object = None) -> Iterator[Pipe]:
        with super().pipe_or_acquire(pipe, client) as found:
            taking, self._taking = self._taking, None
            yield found.sadd(self._tags, taking) if taking else found

    def _remove_from_indices(self, delivery_tag: str, pipe: Pipe | None = None) -> Pipe:
        found: Pipe = super()._remove_from_indices(delivery_tag, pipe)  # type: ignore[no-untyped-call]
        return found.srem(self._tags, delivery_tag)


def note(app: Celery, connection: Connection, node: str) -> None:
    """Note all messages that the consumer on this connection holds, from its first one on."""
    channel = connection.default_channel if is_redis(connection) else None
    if not isinstance(channel, Channel) or not channel.ack_emulation:
        return
    incarnation = app.coordinator.incarnation
    try:
        with suppress(*connection.connection_errors):  # the warden keeps it, too
            keep(app, channel, f"{incarnation} {node}")
    except Exception as error:  # an ACL: Redis would refuse the notes as well, and that would stop the consumer
        logger.warning("the broker refuses to note unacked messages of %s, which return late now: %s", node, error)
    else:
        channel._qos = Noted(channel, _TAGS + incarnation)  # the event loop has asked it for one already


def keep(app: Celery, channel: Channel, worker: str) -> list[str]:
    """Give this worker's set a new deadline. Returns the workers whose deadline has passed."""
    found = _script(channel, "keep")([_WORKERS + app.main], [worker, milliseconds(lasts(app))])
    return [one.decode() for one in found]


@cache
def _text_of(script: str) -> str:
    """A plain script, not a function: this Redis may be older, or forbid functions."""
    return resources.files("coordinator.worker").joinpath(f"unacked_{script}.lua").read_text(encoding="utf-8")


def _script(channel: Channel, name: str) -> Callable[..., Any]:
    """kombu's client puts the `global_keyprefix` before the first key of a script, and before no other."""
    return cast(Callable[..., Any], channel.client.register_script(_text_of(name)))


def lasts(app: Celery) -> float:
    """Seconds from a heartbeat to the deadline that it gives."""
    return float(app.coordinator.settings.node_ttl + START)


class Unacked(StoppableThread):
    """A warden plugin: keeps its worker's unacked messages, and returns those of dead workers."""

    def __init__(self, app: Celery, node: str, incarnation: str) -> None:
        super().__init__("unacked", 2.0)
        self._app = app
        self._worker = f"{incarnation} {node}"
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._kept = self._since = float("-inf")
        self._failing = False

    def run(self) -> None:
        pause = min(self._app.coordinator.settings.heartbeat, lasts(self._app) / 4)
        while not self.stopping.is_set():
            self.step()
            self.stopping.wait(pause)
        self.close()

    def step(self) -> None:
        """Never raises."""
        try:
            over = [worker for worker in self._keep() if not self._lives(worker)]
            for worker in over:
                self.give_back(worker, over)
        except Exception as error:
            if not self._failing:
                logger.warning("cannot keep the unacked messages of %s, and tries again: %s", self._worker, error)
            self._failing = True
            self.close()
        else:
            self._failing = False

    def _keep(self) -> list[str]:
        """The workers that count as dead."""
        began, lasting = time.monotonic(), lasts(self._app)
        over = keep(self._app, self._connected(), self._worker)
        now = time.monotonic()
        if began - self._kept > lasting / 2:
            self._since = now
        self._kept = now
        return over if now - self._since >= lasting else []

    def _lives(self, worker: str) -> bool:
        """Its errands may hang, or start again and import a large app; its clock says that it lives."""
        incarnation, _, node = worker.partition(" ")
        return Nodes(self._app.coordinator.store).is_alive(node, incarnation)

    def give_back(self, worker: str, over: list[str]) -> None:
        """Return the messages of `worker`, one of the workers whose deadlines are `over`.

        Stops early when it takes long, since the own worker's deadline comes; the next step continues.
        """
        client = self._connected().client
        incarnation, _, node = worker.partition(" ")
        # kombu puts its prefix before the key of a ZRANGE from 5.7 on, and before none of this.
        known = client.execute_command("ZRANGEBYSCORE", self._prefix + _WORKERS + self._app.main, "-inf", "+inf")
        every = {one.decode() for one in known}
        name_lives = node in {one.partition(" ")[2] for one in every - set(over)}
        until, number = time.monotonic() + lasts(self._app) / 8, 0
        for done in self._returns(incarnation, "" if name_lives else queue_of(node).name):
            number += done
            if time.monotonic() >= until:
                return
        client.zrem(_WORKERS + self._app.main, worker)
        logger.log(logging.WARNING if number else logging.INFO, "%s is dead: %d messages went back", node, number)

    def _returns(self, incarnation: str, forsaken: str) -> Iterator[int]:
        """A message at each turn. `forsaken`: a dead node's own queue, which nobody consumes, or none."""
        channel = self._connected()
        for tag in self.tags(incarnation):
            yield self.put_back(incarnation, tag, channel.client.hget(channel.unacked_key, tag) or b"", forsaken)
        for step in channel.priority_steps if forsaken else ():
            yield from self._empty(f"{forsaken}{channel.sep}{step}" if step else forsaken, forsaken)

    def tags(self, incarnation: str) -> list[bytes]:
        return sorted(self._connected().client.smembers(_TAGS + incarnation))

    def put_back(self, incarnation: str, tag: bytes, kept: bytes, forsaken: str) -> int:
        """1 where this call did it. `kept`: the message as kombu stores it; `forsaken`: see `_returns`."""
        channel = self._connected()
        keys, text = [_TAGS + incarnation, channel.unacked_key, channel.unacked_index_key], ""
        if kept:
            message, exchange, routing_key = loads(kept.decode())
            message.setdefault("headers", {})["redelivered"] = True
            message["properties"]["delivery_info"]["redelivered"] = True
            lists, text = self._way(message, exchange, routing_key, forsaken)
            keys += lists
        return self._run("return", keys, tag, kept, text)

    def _empty(self, name: str, own: str) -> Iterator[int]:
        """Move the messages in this list of a dead node's own queue, the oldest first. Anything else stays."""
        before: list[bytes] = []
        while (found := self._oldest(name)) != before:
            before = found
            for stored in reversed(found):
                try:
                    lists, text = self._way(loads(stored.decode()), "", own, own)
                except (ValueError, TypeError, LookupError, AttributeError):
                    continue
                yield self._run("move", [name, *lists], stored, text)
        if before:
            logger.warning("%d items in the queue %s are no messages of Celery and stay there", len(before), own)

    def _oldest(self, name: str) -> list[bytes]:
        found = self._connected().client.execute_command("LRANGE", self._prefix + name, -1000, -1)
        return cast(list[bytes], found)

    def _way(self, message: Stored, exchange: str, routing_key: str, forsaken: str) -> tuple[list[str], str]:
        """The lists that get the message, and its text there: its old queue, or else the default queue.

        No lists: the message is a doorbell, and void.
        """
        channel = self._connected()
        queues = list(channel._lookup(exchange, routing_key))
        if not queues or forsaken in queues:
            if (message.get("headers") or {}).get("task") == TASK:
                return [], ""
            queues = [self._app.conf.task_default_queue]
            message["properties"]["delivery_info"] |= {"exchange": "", "routing_key": queues[0]}
        step = channel._get_message_priority(message, reverse=False)
        return [channel._q_for_pri(queue, step) for queue in queues], dumps(message)

    def _run(self, script: str, keys: list[str], *args: str | bytes) -> int:
        names = [keys[0], *(self._prefix + key for key in keys[1:])]
        return int(_script(self._connected(), script)(names, args))

    @property
    def _prefix(self) -> str:
        return str(self._connected().global_keyprefix)

    def _connected(self) -> Channel:
        if self._channel is None:
            self._connection = self._app.connection_for_read(transport_options=BOUNDED)
            self._connection.connect()
            self._channel = self._connection.channel()
            for queue in self._app.amqp.queues.values():
                if queue.exchange.name:  # the exchange's type decides to which queues its messages go
                    queue.exchange(self._channel).declare()
        return self._channel

    def close(self) -> None:
        """Let go of the connection; the next call makes another."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.release()


def open_unacked(app: Celery, node: str, incarnation: str) -> list[Unacked]:
    """Empty where the broker is no Redis and returns such messages itself."""
    with app.connection_for_read() as connection:
        return [Unacked(app, node, incarnation)] if is_redis(connection) else []
