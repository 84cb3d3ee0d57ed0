"""Declares a request queue only if it does not exist yet."""

from __future__ import annotations

from typing import Any

from kombu.entity import Queue


class QueueAsItIs(Queue):
    """A kombu queue whose declaration does nothing if the broker has a queue of this name.

    RabbitMQ refuses a declaration whose arguments differ from those of the existing queue, such as its priorities.
    """

    def queue_declare(self, nowait: bool = False, passive: bool = False, channel: Any = None) -> Any:
        channel = channel or self.channel
        transport = channel.connection.client.transport
        if transport.driver_type == "amqp":
            try:
                # On a channel of its own: RabbitMQ closes the channel if the queue does not exist.
                with channel.connection.channel() as own:
                    return super().queue_declare(passive=True, channel=own)  # type: ignore[no-untyped-call]
            except transport.channel_errors:
                pass
        return super().queue_declare(nowait, passive, channel)  # type: ignore[no-untyped-call]


def request_queue(name: str, most: int | None = None) -> Any:
    """Make the kombu queue `name` on the default exchange. `most`: the number of messages that the queue keeps, the
    newest; None = all.
    """
    return QueueAsItIs(name, exchange="", routing_key=name, max_length=most)  # type: ignore[no-untyped-call]
