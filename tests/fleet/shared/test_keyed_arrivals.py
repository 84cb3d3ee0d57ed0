"""Messages of keyed tasks that somebody without the library has sent go into the lane where they arrive."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, chain

from coordinator import InvalidJob, NoRetry
from tests.harness.fleet import ROOT, Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("keyed", 2)


@pytest.fixture
def keyed(fleet: Fleet) -> Any:
    return fleet.app("keyed")


@pytest.fixture
def stranger(fleet: Fleet) -> Iterator[Celery]:
    """An app that knows the broker, the backend and names of tasks; it has no coordinator."""
    app = Celery("stranger", broker=fleet.environ["TEST_BROKER"], backend=fleet.server.url(2), set_as_current=False)
    options = {"global_keyprefix": f"{fleet.prefix}."}
    app.conf.update(broker_transport_options=options, result_backend_transport_options=options)
    yield app
    app.backend.client.close()
    app.close()


@pytest.mark.broker
def test_a_stranger_s_message_lands_in_the_lane_under_its_own_id(fleet: Fleet, keyed: Any, stranger: Celery) -> None:
    first = keyed.held.delay("first")
    fleet.begun("first")
    sent = stranger.send_task("keyed.add", (1,), {"y": 2}, link=stranger.signature("keyed.note"), headers={"x": "y"})
    wait_until(lambda: keyed.coordinator.lane("lane/usual").length == 2, what=fleet.logs)
    assert keyed.coordinator.job(sent.id).state == "waiting"
    wait_until(lambda: fleet.messages() == 0)
    fleet.go("first")
    assert (sent.get(timeout=60), first.get(timeout=60)) == (3, "first")
    fleet.begun("note/3")


def test_a_call_and_a_stranger_s_message_with_equal_arguments_share_a_lane(
    fleet: Fleet, keyed: Any, stranger: Celery
) -> None:
    pairs: list[tuple[Any, Any]] = [((1, 2), [1, 2]), ({"b": (1,), "a": 2.0}, {"a": 2, "b": [1]})]
    for ours, theirs in pairs:
        keys = []
        for call in (keyed.nothing.delay(lane=ours), stranger.send_task("keyed.nothing", kwargs={"lane": theirs})):
            call.get(timeout=60)
            keys.append(keyed.coordinator.job(call.id).keys)
        assert keys[0] == keys[1]


def test_a_key_of_headers_is_one_lane_for_a_call_and_a_message_and_for_their_retries(
    fleet: Fleet, keyed: Any, stranger: Celery
) -> None:
    headers = {"tenant": "ann"}
    made = keyed.rent.apply_async((True,), headers=headers), stranger.send_task("keyed.rent", (True,), headers=headers)
    submitted = keyed.coordinator.submit(None, keyed.rent.si(True).set(headers=headers))
    for call in made:
        assert call.get(timeout=60) == "ann"
    assert submitted.get(timeout=60) == "ann"
    jobs = [keyed.coordinator.job(one.id) for one in (*made, submitted)]
    assert [(job.keys, job.attempt) for job in jobs] == 3 * [(("ann/rent",), 2)]
    other = keyed.rent.apply_async((True, "ben"), headers=headers)
    with pytest.raises(NoRetry, match="its new arguments make the key 'ben/rent', and the job holds only"):
        other.get(timeout=60)
    with pytest.raises(InvalidJob, match=r"keyed\.rent: key .*'tenant'"):
        keyed.rent.delay()
    with pytest.raises(InvalidJob, match=r"keyed\.rent: key .*'tenant'"):
        stranger.send_task("keyed.rent").get(timeout=60)


def test_a_message_that_comes_twice_starts_nothing_twice(fleet: Fleet, keyed: Any, stranger: Celery) -> None:
    for _ in range(3):
        sent = stranger.send_task("keyed.add", (1, 2), task_id="same")
    assert sent.get(timeout=60) == 3
    wait_until(lambda: fleet.messages() == 0)
    assert len(fleet.stamps("add/usual", "begin")) == 1
    assert keyed.coordinator.counts()["created"] == 1


@pytest.mark.broker
def test_eta_expires_and_revoke_hold_and_what_cannot_be_a_job_fails(fleet: Fleet, keyed: Any, stranger: Celery) -> None:
    late = stranger.send_task("keyed.add", (1, 2), countdown=3600)
    wait_until(lambda: keyed.coordinator.counts()["scheduled"] == 1, what=fleet.logs)
    late.revoke()
    bad = stranger.send_task("keyed.both", (None, 1))
    wrong = stranger.send_task("keyed.both", (1,))
    past = stranger.send_task("keyed.both", (1, 2), headers={"coordinate": False})
    ends = ((late, r"revoked|cancelled"), (bad, r"\{x\} is None"), (wrong, "missing a required argument: 'y'"))
    for one, said in ends:
        with pytest.raises(Exception, match=said):
            one.get(timeout=60)
    assert past.get(timeout=60) == []
    wait_until(lambda: fleet.messages() == 0)


def test_a_chain_that_a_worker_without_the_library_goes_on_with_reaches_the_lane(fleet: Fleet, keyed: Any) -> None:
    argv = [sys.executable, "-m", "celery", "-A", "tests.harness.apps.stranger", "worker", "-n", "two@test"]
    options = ["-Q", "strange", "-c", "1", "--without-mingle", "--without-gossip", "--without-heartbeat"]
    with (fleet.directory / "stranger.log").open("wb") as log:
        env = os.environ | fleet.environ
        worker = subprocess.Popen([*argv, *options], stdout=log, stderr=log, cwd=ROOT, env=env, start_new_session=True)
    try:
        far = keyed.app.signature("strange.double", (4,), queue="strange")
        assert chain(far, keyed.add.s(1), keyed.add.s(2)).apply_async().get(timeout=60) == 11
    finally:
        worker.kill()
        worker.wait()
    assert keyed.coordinator.counts()["created"] == 2
