from celery.worker.heartbeat import Heart
from kombu.asynchronous.timer import Timer

from coordinator.core.celery_patches import heartbeat


class Sent(list[tuple[str, bool]]):
    """Stands where Celery has its event dispatcher, and notes which events are tried again."""

    enabled = True

    def __init__(self) -> None:
        self.on_enabled: set[object] = set()
        self.on_disabled: set[object] = set()

    def send(self, event: str, retry: bool, **_: object) -> None:
        self.append((event, retry))


def test_a_heartbeat_is_tried_once_and_what_begins_a_worker_until_the_broker_has_it() -> None:
    heartbeat.install()
    sent, timer = Sent(), Timer()
    Heart(timer, sent).start()
    timer.queue[0].entry()
    assert sent == [("worker-online", True), ("worker-heartbeat", False)]
