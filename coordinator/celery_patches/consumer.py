"""A worker's consumer that survives the loss of its broker, whichever of its connections notices it first, if any."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from celery.worker import consumer
from kombu.connection import Connection

from coordinator.broker import is_redis
from coordinator.celery_patches.listening import ReplyWatch, listen

_RETRY = 4  # seconds at most between two tries to connect; Celery's pauses grow to thirty


class LastingConsumer(consumer.Consumer):
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
        """Ignore the NotImplementedError of pools that cannot stop a body at a cold shutdown: a solo pool would raise
        it in the body of its job.
        """
        with suppress(NotImplementedError):
            super().cancel_active_requests()

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Close the channel of a Redis broker while its transport still exists, and have all pool processes watched.

        The first close of a channel reads the reply of its BRPOP, which raises on a lost connection and leaves the
        channel open. A later close would restore unacknowledged messages over a transport that is gone by then: an
        AttributeError, which ends the worker. So the close that raises happens here.

        When two pool processes die in one look of the loop, Celery takes the file descriptor of the second, which a
        new process has by then, for that one's end: it watches the new process no longer, and a reconnect would end
        the worker with a ValueError. Without the attribute, Celery watches it again.
        """
        for process in getattr(getattr(self.pool, "_pool", None), "_pool", ()):  # of prefork
            if getattr(process, "_sentinel_poll", 0) is None:
                del process._sentinel_poll
        tasks = self.task_consumer
        if tasks is not None and tasks.channel is not None and is_redis(self.connection):
            self.connection.maybe_close_channel(tasks.channel)
        super().on_connection_error_after_connected(exc)
