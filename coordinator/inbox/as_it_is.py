"""A request queue as its senders declare it: one that exists stays as it is."""

from __future__ import annotations

from typing import Any

from kombu.entity import Queue


class QueueAsItIs(Queue):
    """RabbitMQ refuses a sender that declares a queue otherwise than it is: with priorities, or as a quorum queue. So
    this one is declared only where it is not there.
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


def request_queue(name: str) -> QueueAsItIs:
    return QueueAsItIs(name, exchange="", routing_key=name)  # type: ignore[no-untyped-call]
