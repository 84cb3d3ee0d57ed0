"""Jobs and keyed calls of an app that accepts no JSON, though a doorbell is JSON."""

from celery import Celery

from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until


def test_an_app_that_accepts_pickle_alone_runs_jobs_and_refuses_json_as_before(fleet: Fleet) -> None:
    fleet.environ |= {"TEST_SERIALIZER": "pickle", "C_FORCE_ROOT": "1"}
    fleet.worker("one", 1, app="keyed")
    keyed = fleet.app("keyed")
    job = keyed.coordinator.submit("a", keyed.add.s(1, 2))
    assert keyed.coordinator.wait(job, 20).result == 3
    assert keyed.add.delay(2, 3).get(timeout=20) == 5
    conf = keyed.app.conf
    with Celery("a client", broker=conf.broker_url, backend=conf.result_backend, set_as_current=False) as client:
        transports = ("broker_transport_options", "result_backend_transport_options")
        client.conf.update({name: conf[name] for name in (*transports, "accept_content", "result_serializer")})
        sent = client.send_task("keyed.add", (3, 4), serializer="pickle")
        assert sent.get(timeout=20) == 7, "its message is put in line by the worker"
        client.send_task("keyed.add", (4, 5), serializer="json")
        wait_until(lambda: "Refusing to deserialize untrusted content of type json" in fleet.logs(), 20)
    assert len(fleet.stamps(what="end")) == 3
