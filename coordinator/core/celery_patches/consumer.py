"""A consumer for Celery workers that connects again after the loss of the broker, also where Celery's own consumer
would hang or end the worker.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from celery.worker import consumer
from kombu.connection import Connection

from coordinator.core.broker import is_redis
from coordinator.core.celery_patches.listening import ReplyWatch, listen

_RETRY = 4  # seconds at most between two tries to connect; in Celery these pauses grow to thirty seconds


class LastingConsumer(consumer.Consumer):
    """A worker's consumer that connects again after each loss of the broker. `coordinator_listening`: measures how long
    a Redis broker did not reply; None for other brokers.
    """

    coordinator_listening: ReplyWatch | None = None

    def connect(self) -> Connection:
        connection: Connection = super().connect()
        self.coordinator_listening = listen(connection)
        return connection

    def ensure_connected(self, conn: Connection) -> Connection:
        look = partial(conn.ensure_connection, interval_max=_RETRY)
        conn.ensure_connection = look  # type: ignore[method-assign]
        connected: Connection = super().ensure_connected(conn)
        return connected

    def cancel_active_requests(self) -> None:
        """Ignore the NotImplementedError of a pool that cannot stop running tasks at a cold shutdown: in a solo pool,
        it would be raised inside the task that runs.
        """
        with suppress(NotImplementedError):
            super().cancel_active_requests()

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """After the loss of the broker, close the channel of a Redis broker while its transport still exists, and make
        Celery watch all processes of the pool.

        The first close of a channel reads the reply of the pending BRPOP, which raises on a lost connection and leaves
        the channel open. If that happened later, a second close would restore unacknowledged messages over a transport
        that is gone by then, and the AttributeError would end the worker. So the first close happens here.

        When two pool processes die in the same turn of the event loop, a new process may already have the file
        descriptor of the second one. Celery then takes the new process for the dead one and stops watching it: its
        attribute `_sentinel_poll` is None, and a reconnect would end the worker with a ValueError. Without the
        attribute, Celery watches the process again.
        """
        for process in getattr(getattr(self.pool, "_pool", None), "_pool", ()):  # only the prefork pool has processes
            if getattr(process, "_sentinel_poll", 0) is None:
                del process._sentinel_poll
        tasks = self.task_consumer
        if tasks is not None and tasks.channel is not None and is_redis(self.connection):
            self.connection.maybe_close_channel(tasks.channel)
        super().on_connection_error_after_connected(exc)
