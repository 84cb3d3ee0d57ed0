"""A look for what older versions left costs a worker that starts little time where the broker is away."""

import pytest
from celery import Celery

from coordinator.broker import leftovers
from coordinator.local.redis import free_port
from tests.harness.waiting import within


@pytest.mark.timeout(30)
@pytest.mark.parametrize("scheme", ["amqp", "redis"])
def test_a_broker_that_is_away_holds_up_no_worker(scheme: str) -> None:
    app = Celery("shop", broker=f"{scheme}://127.0.0.1:{free_port()}//", set_as_current=False)
    with within(4):
        leftovers.clear(app, "one@test")
