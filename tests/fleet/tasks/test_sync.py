"""Member nodes are kept synchronized: real workers of the service, real member nodes on loopback."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import pytest

from examples.demo.member_server import Reply, Request
from tasks.database import upsert
from tasks.database.database import meta
from tasks.documents.document import Document
from tasks.nodelist.xml_format import write_nodelist
from tests.fleet.tasks.conftest import A, B, Members
from tests.fleet.tasks.service import Service
from tests.fleet.tasks.standing import harvested
from tests.harness.command import ROOT, environment
from tests.harness.rabbitmq import Broker
from tests.harness.redis import RedisServer
from tests.harness.stopping import stop
from tests.harness.waiting import wait_until
from tests.harness.warm import python

Begin = Callable[..., Service]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def begin(own_redis: RedisServer, tmp_path: Path, members: Members, stack: ExitStack) -> Begin:
    """Begins the service of both members; its environment has these variables, too."""
    return lambda **env: stack.enter_context(Service(own_redis, tmp_path, members, **env))


@pytest.mark.broker
def test_whatever_is_asked_while_a_sync_runs_makes_exactly_one_more_run(
    begin: Begin, rabbitmq: Broker | None, members: Members, stack: ExitStack
) -> None:
    broker = {"CELERY_BROKER_URL": rabbitmq.url} if rabbitmq else {}
    service, go = begin(**broker), Event()
    stack.callback(go.set)

    def slow(request: Request) -> None:
        if request.path[0] == "object":
            go.wait(30)

    members[0].hook = slow
    service.node("one")
    service.ask(json.dumps({"node": A, "id": "first"}))
    wait_until(lambda: service.known("first") and service.coordinator.job("first").state == "running")
    for number in range(12):
        pid = f"doi:10.5/{number:06d}" if number != 7 else None
        service.ask(json.dumps({"node": A, "id": f"more{number}"} | ({"pid": pid} if pid else {})))
    wait_until(lambda: all(service.known(f"more{number}") for number in range(12)))
    assert service.coordinator.lane(f"sync/{A}").length == 2
    go.set()
    more = [service.ended(f"more{number}") for number in range(12)]
    assert {job.id for job in more} == {more[0].id}
    pids = {f"doi:10.5/{number:06d}" for number in range(12) if number != 7}
    asked = ["increment", *(f"pid {pid}" for pid in pids)]
    assert (more[0].state, sorted(more[0].kwargs["asked"])) == ("succeeded", sorted(asked))
    assert more[0].result["pids"] == dict.fromkeys(pids, "stored")
    assert service.coordinator.lane(f"sync/{A}").length == 0


def test_a_busy_member_is_left_alone_for_as_long_as_it_asks_and_its_job_holds_no_slot(
    begin: Begin, members: Members
) -> None:
    service, asked = begin(), list[float]()

    def busy_twice(request: Request) -> Reply | None:
        asked.append(time.monotonic())
        return Reply(b"", 429, {"Retry-After": "1"}) if len(asked) <= 2 else None

    members[0].hook = busy_twice
    service.node("one")
    service.ask(json.dumps({"node": A, "id": "first"}))
    job = service.ended("first")
    assert (job.state, job.attempt, [event.what for event in job.course].count("cooled_down")) == ("succeeded", 3, 2)
    assert min(asked[1] - asked[0], asked[2] - asked[1]) > 0.9


def test_a_sync_stopped_past_its_lease_is_succeeded_and_its_late_writes_are_refused(
    begin: Begin, members: Members, stack: ExitStack
) -> None:
    times = {"COORDINATOR_LOCK_TTL": "1.5", "COORDINATOR_SWEEP": "0.1", "TASKS_PAGE_SIZE": "10"}
    service = begin(**times)
    first = service.node("one", 1)
    asked, go = Event(), Event()
    stack.callback(go.set)

    def slow(request: Request) -> None:
        if request.path[0] == "meta" and not asked.is_set():
            asked.set()
            go.wait(30)

    members[0].hook = slow
    service.ask(json.dumps({"node": A, "id": "mine"}))
    assert asked.wait(60)
    runner = int(next(iter(service.coordinator.store._client.hkeys("{coord}:work:one@test"))).split(b".")[0])
    stopped = next(child for child in first.children() if child.pid == runner)
    stop(stopped)
    stack.callback(lambda: stopped.send_signal(signal.SIGCONT))
    late = service.coordinator.job("mine").fence
    service.node("two", 1)
    job = service.ended("mine")
    assert (job.state, job.attempt, job.losses, job.node) == ("succeeded", 2, 1, "two@test")
    assert job.fence
    assert late
    assert job.fence > late
    wait_until(lambda: not Document(service.coordinator.store, "nodelist").behind())
    before = service.catalog.summary(A), harvested(service, A)
    members[0].put("doi:10.5/after")
    go.set()
    stopped.send_signal(signal.SIGCONT)
    wait_until(lambda: "Redis refused the outcome" in service.log("one"), what=lambda: service.log("one")[-2000:])
    assert (service.catalog.summary(A), harvested(service, A)) == before
    assert service.coordinator.job("mine").state == "succeeded"


def test_one_that_is_set_up_wrongly_says_so_and_the_other_is_synchronized(begin: Begin, tmp_path: Path) -> None:
    access = tmp_path / "access.json"
    access.write_text(json.dumps({A: {"ca_bundle": "/nowhere.pem"}}))
    service = begin(TASKS_ACCESS=str(access))
    service.node("one")
    for name in (A, B):
        service.ask(json.dumps({"node": name, "id": name}))
    assert [service.ended(name).state for name in (A, B)] == ["failed", "succeeded"]
    error = service.catalog.summary(A).error
    assert error
    assert "/nowhere.pem" in error


@pytest.mark.parametrize("what", [("worker", "-n", "far@test"), ("beat", "--pidfile=")])
def test_a_node_or_beat_of_a_second_host_does_not_start_on_a_sqlite_catalog(
    begin: Begin, what: tuple[str, ...]
) -> None:
    service = begin()
    owner = [{"name": "host", "value": "cn1"}, {"name": "boot", "value": "of another machine"}]
    with service.catalog.engine.begin() as connection:
        upsert(connection, meta, owner)
    done = python(["-m", "celery", "-A", "tasks", *what], ROOT, environment(**service.environ))
    assert done.returncode == 1
    assert "belongs to host cn1" in done.stderr
    assert "TASKS_DATABASE_URL=postgresql" in done.stderr
    assert "Traceback" not in done.stderr


def test_each_member_to_be_synchronized_has_a_tick_and_a_change_of_the_nodelist_is_a_new_version(
    begin: Begin, members: Members
) -> None:
    service = begin(TASKS_TIMEZONE="Asia/Kolkata")
    ticks = (
        "from tasks.schedules import entries; version, found = entries(); "
        "print(version, *((one.name, one.submit['collect']['how'], one.schedule.expression, one.schedule.tz.key)"
        " for one in found))"
    )
    both = service.shell(ticks)
    for name in (A, B):
        assert f"('sync/{name}', 'merge', '" in both
    assert both.count("'Asia/Kolkata'") == 2
    down = members[0].member.model_copy(update={"state": "down"})
    service.settings.nodelist.write_bytes(write_nodelist([down, members[1].member]))
    one = service.shell(ticks)
    assert (f"sync/{A}" in one, f"sync/{B}" in one) == (False, True)
    assert one.split()[0] != both.split()[0]


def test_called_outside_a_lane_it_takes_the_lock_itself_or_ends_as_locked(begin: Begin, members: Members) -> None:
    service = begin()
    call = "from tasks.sync import sync_member_node as sync; print(sync({!r})['outcome'])"
    with service.coordinator.lock(f"sync/{A}"):
        assert service.shell(call.format(A)) == "locked"
    assert service.shell(call.format(A)) == "succeeded"
    assert service.pids(A) == members[0].pids
    assert service.shell(call.format("urn:node:nobody")) == "not synchronizable"
    assert service.coordinator.lane(f"sync/{A}").length == 0


def test_whole_months_of_a_member_are_harvested_again_a_job_each_and_none_twice(begin: Begin, members: Members) -> None:
    service = begin()
    service.node("one")
    service.ask(json.dumps({"node": A, "id": "first"}))
    assert service.ended("first").state == "succeeded"
    for pid, month in (("november", 11), ("december", 12), ("october", 10)):
        members[0].put(pid, datetime(2024, month, 15, tzinfo=UTC))
    service.beat()
    asked = "members", "backfill", A, "2024-11-01", "2025-01-01", "--why", "objects are missing"
    assert service.call(*asked).stdout.startswith("2 of 2 months to run\n")
    entry = f"months/{A}"
    wait_until(lambda: service.coordinator.entries.entry(entry).backfill.over, what=lambda: service.log("beat"))  # type: ignore[union-attr]
    assert service.pids(A) & {"october", "november", "december"} == {"november", "december"}
    runs = [service.coordinator.job(f"{entry}@{end}-01T00:00:00Z") for end in ("2024-12", "2025-01")]
    assert [(run.state, (run.result or {})["stored"], run.keys) for run in runs] == [
        ("succeeded", 1, (f"sync/{A}",))
    ] * 2
    assert service.call(*asked).stdout.startswith("0 of 2 months to run, 2 ran\n")
