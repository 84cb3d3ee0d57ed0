"""How long a message of a keyed task waits in a worker for Redis."""

from types import SimpleNamespace
from typing import cast

import pytest
from celery.exceptions import Reject

from coordinator import StoreUnavailable
from coordinator.core.keyed_task import arrivals
from coordinator.core.keyed_task.lane_producer import LaneProducer
from coordinator.core.keyed_task.message import ReceivedCall


def test_a_message_goes_back_to_its_queue_where_redis_is_away_for_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    times = SimpleNamespace(now=1000.0, tries=0)

    def submit(_: ReceivedCall) -> None:
        times.tries += 1
        raise StoreUnavailable("away")

    def sleep(seconds: float) -> None:
        times.now += seconds

    monkeypatch.setattr(arrivals, "time", SimpleNamespace(monotonic=lambda: times.now, sleep=sleep))
    call = ReceivedCall({"task": "shop.ship"}, {})
    with pytest.raises(Reject) as rejected:
        arrivals._put_in_line(cast(LaneProducer, SimpleNamespace(submit=submit)), call)
    assert rejected.value.requeue
    assert 5 <= times.now - 1000 <= 6
    assert times.tries > 10
