"""What is said on the event exchange of an app while a test listens."""

import threading
from contextlib import suppress
from typing import Any, Self

from celery import Celery


class Ear:
    """What is said on the event exchange: when each message was sent, the task events, and of each job their types."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self.messages: list[float] = []
        self.told: list[Any] = []
        self.heard: dict[str, list[str]] = {}
        self._listens, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with self._app.connection_for_read() as connection:
            receiver = self._app.events.Receiver(connection)
            with connection.Consumer(queues=[receiver.queue], callbacks=[self._hear], no_ack=True):
                self._listens.set()
                while not self._over.is_set():
                    with suppress(TimeoutError):
                        connection.drain_events(timeout=0.2)

    def _hear(self, body: Any, _: object) -> None:
        events = [one for one in (body if isinstance(body, list) else [body]) if one["type"].startswith("task-")]
        if events:
            self.messages.append(max(one["timestamp"] for one in events))
        self.told += events
        for one in events:
            self.heard.setdefault(one["uuid"], []).append(one["type"])

    def of(self, job_id: str) -> list[str]:
        return self.heard.get(job_id, [])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listens.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
