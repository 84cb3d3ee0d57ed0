"""Requests that coalesce into one sync: each hears of its own."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest

from examples.demo.member_server import MemberServer, Request, failure
from tasks import instants
from tests.fleet.tasks.service import Service
from tests.harness.command import refused, told
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

A, LANE = "urn:node:mnA", "sync/urn:node:mnA"
OLD = instants.parse("2001-01-01T00:00:00Z")


@pytest.fixture
def service(own_redis: RedisServer, tmp_path: Path, member: MemberServer) -> Iterator[Service]:
    with Service(own_redis, tmp_path, [member], TASKS_TRIES="1") as service:
        service.node("one")
        service.ask(json.dumps({"node": A, "id": "first"}))
        assert service.ended("first").state == "succeeded"
        member.put("old", OLD)  # no increment lists it
        yield service


def held(stack: ExitStack, member: MemberServer) -> Event:
    """Its listing waits until the event is set."""
    go = Event()
    stack.callback(go.set)

    def slow(request: Request) -> None:
        if request.path[0] == "object":
            go.wait(30)

    member.hook = slow
    return go


def test_each_of_those_whose_requests_coalesced_hears_of_his_own(service: Service, member: MemberServer) -> None:
    with ExitStack() as stack:
        go = held(stack, member)
        service.ask(json.dumps({"node": A, "id": "running"}))
        wait_until(lambda: service.known("running") and service.coordinator.job("running").state == "running")
        asks = {"every": {}, "old": {"pid": "old"}, "none": {"pid": "nowhere"}}
        for name, ask in asks.items():
            service.ask(json.dumps({"node": A, "id": name} | ask))
        wait_until(lambda: all(service.known(name) for name in asks))
        go.set()
        jobs = {name: service.ended(name) for name in asks}
    assert len({job.id for job in jobs.values()}) == 1
    result = jobs["every"].result
    assert (jobs["every"].state, result["outcome"], result["pids"]["old"]) == ("succeeded", "succeeded", "stored")
    assert "404" in result["pids"]["nowhere"]
    assert "old" in service.pids(A)
    member.hook = lambda request: None
    assert told(service.call("refresh", A, "--why", "a test", "--pid", "old", "--wait")) == f"{A}: old is stored"
    done = service.call("refresh", A, "--why", "a test", "--pid", "nowhere", "--wait")
    assert (done.returncode, done.stdout) == (1, "")
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"Error: {A}: nowhere is not stored: ")
    assert "no object nowhere" in said


def test_who_asks_for_an_object_hears_that_it_is_stored_though_the_increment_beside_it_fails(
    service: Service, member: MemberServer
) -> None:
    def no_listing(request: Request) -> None:
        if request.path[0] == "object":
            raise ConnectionAbortedError  # the server closes the connection

    pool = ThreadPoolExecutor(1)
    with service.coordinator.lock(LANE):
        service.ask(json.dumps({"node": A, "id": "every"}))
        wait_until(lambda: service.known("every"))
        done = pool.submit(service.call, "refresh", A, "--why", "a test", "--pid", "old", "--wait")
        wait_until(lambda: "pid old" in service.coordinator.job("every").kwargs["asked"], 30)
        member.hook = no_listing
    assert service.ended("every").state == "failed"
    assert told(done.result()) == f"{A}: old is stored"


def test_a_complete_pass_can_be_asked_for_and_a_mistyped_pid_forgotten(service: Service, member: MemberServer) -> None:
    assert told(service.call("refresh", A, "--why", "a test", "--complete", "--wait")) == (
        f"{A}: succeeded: 6 listed, 1 stored, 5 unchanged, 0 failed"
    )
    assert service.pids(A) == member.pids
    assert service.call("refresh", A, "--why", "a test", "--pid", "mistyped", "--wait").returncode == 1
    assert told(service.call("members", "forget", A, "mistyped")).startswith(f"{A}: mistyped is forgotten")
    assert service.catalog.failed(A) == []
    assert "mistyped is no failed object" in refused(service.call("members", "forget", A, "mistyped"))
    for pid in ("mistyped", "mistyped/2"):
        assert service.call("refresh", A, "--why", "a test", "--pid", pid, "--wait").returncode == 1
    assert "2 failed objects are forgotten" in told(service.call("members", "forget", A, "--all"))
    assert service.catalog.failed(A) == []
    assert "give either PID or --all" in service.call("members", "forget", A).stderr


def test_an_error_of_a_member_is_one_line_in_the_log(service: Service, member: MemberServer) -> None:
    member.hook = lambda request: failure(401, "NotAuthorized", "you may not list")
    service.ask(json.dumps({"node": A, "id": "refused"}))
    assert "you may not list" in str(service.ended("refused").error)
    wait_until(lambda: "you may not list" in service.log("one"))
    assert len([line for line in service.log("one").splitlines() if "you may not list" in line]) == 1
    assert "Traceback" not in service.log("one")
