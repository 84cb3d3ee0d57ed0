"""Jobs of apps whose settings of Celery are unusual."""

import pytest
from celery import Celery

from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until


def test_an_app_that_accepts_pickle_alone_runs_jobs_and_refuses_json_as_before(fleet: Fleet) -> None:
    fleet.environ |= {"TEST_SERIALIZER": "pickle", "C_FORCE_ROOT": "1"}
    fleet.worker("one", 1, app="keyed")
    keyed = fleet.app("keyed")
    job = keyed.coordinator.submit("a", keyed.add.s(1, 2))
    assert keyed.coordinator.wait(job, 60).result == 3
    assert keyed.add.delay(2, 3).get(timeout=60) == 5
    conf = keyed.app.conf
    with Celery("a client", broker=conf.broker_url, backend=conf.result_backend, set_as_current=False) as client:
        transports = ("broker_transport_options", "result_backend_transport_options")
        client.conf.update({name: conf[name] for name in (*transports, "accept_content", "result_serializer")})
        sent = client.send_task("keyed.add", (3, 4), serializer="pickle")
        assert sent.get(timeout=60) == 7, "its message is put in line by the worker"
        client.send_task("keyed.add", (4, 5), serializer="json")
        wait_until(lambda: "Refusing to deserialize untrusted content of type json" in fleet.logs())
    assert len(fleet.stamps(what="end")) == 3


@pytest.mark.broker
def test_jobs_begin_where_the_first_of_several_brokers_is_away(fleet: Fleet) -> None:
    broker = fleet.environ["TEST_BROKER"]
    fleet.environ["TEST_BROKER"] = f"{broker.partition('://')[0]}://127.0.0.1:1/1;{broker}"
    fleet.worker("one", 1)
    job = fleet.coordinator.submit("a", fleet.shop.work.s("a job"))
    assert fleet.coordinator.wait(job, 60).state == "succeeded"
    assert fleet.shop.work.delay("plain").get(timeout=60) == "plain"
