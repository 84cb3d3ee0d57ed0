"""A message of a keyed task, sent without the library, while Redis is away."""

import pytest
from celery import Celery

from tests.fleet.shared.test_keyed_arrivals import stranger
from tests.harness.fleet import Fleet
from tests.harness.proxy import Proxy
from tests.harness.waiting import wait_until

__all__ = ["stranger"]


@pytest.mark.broker
def test_while_redis_is_away_the_message_stays_and_it_is_run_once(fleet: Fleet, stranger: Celery, proxy: Proxy) -> None:
    fleet.worker(app="keyed", COORDINATOR_URL=f"redis://127.0.0.1:{proxy.port}/0")
    proxy.swallow()
    sent = stranger.send_task("keyed.add", (1, 2))
    wait_until(lambda: "goes back to its queue" in fleet.logs(), what=fleet.logs)
    wait_until(lambda: fleet.messages() == 1)  # between the two it is in neither place
    proxy.heal()
    assert sent.get(timeout=60) == 3
    wait_until(lambda: fleet.messages() == 0)
    assert len(fleet.stamps("add/usual", "begin")) == 1
