"""Declares a request queue only if it does not exist yet."""

from __future__ import annotations

from typing import Any

from kombu.entity import Queue


class QueueAsItIs(Queue):
    """A queue that is declared only if it does not exist: RabbitMQ refuses a declaration that differs from the queue,
    such as one without the priorities that the queue has.
    """

    def queue_declare(self, nowait: bool = False, passive: bool = False, channel: Any = None) -> Any:
        channel = channel or self.channel
        transport = channel.connection.client.transport
        if transport.driver_type == "amqp":
            try:
                with channel.connection.channel() as own:  # a refusal closes its channel
                    return super().queue_declare(passive=True, channel=own)  # type: ignore[no-untyped-call]
            except transport.channel_errors:
                pass
        return super().queue_declare(nowait, passive, channel)  # type: ignore[no-untyped-call]


def request_queue(name: str, most: int | None = None) -> Any:
    """The queue of this name. `most`: how many messages it keeps, the last ones."""
    return QueueAsItIs(name, exchange="", routing_key=name, max_length=most)  # type: ignore[no-untyped-call]
