"""What is asked for of members: each request hears of its own, one bad member harms no other."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from threading import Event

import pytest

from examples.demo.member_server import MemberServer, Reply, Request, failure
from tasks import instants
from tasks.nodelist.protocol import SOON
from tests.fleet.tasks.conftest import Members
from tests.fleet.tasks.service import QUEUE, Service
from tests.fleet.tasks.standing import harvested, ids, members, service, standing
from tests.harness.command import refused, told
from tests.harness.waiting import wait_until

__all__ = ["members", "service", "standing"]

OLD = instants.parse("2001-01-01T00:00:00Z")


def completed(service: Service, member_id: str) -> bool:
    state = service.nodelist.read_one(member_id)
    at = state and state.listed.member.last_complete_harvest
    return bool(at and at > instants.now() - timedelta(minutes=5))


@pytest.fixture
def member(service: Service, members: Members) -> MemberServer:
    """It is harvested, but for one object that no increment lists."""
    member = members[0]
    a = member.member.identifier
    service.ask(json.dumps({"node": a, "id": f"first of {a}"}))
    assert service.ended(f"first of {a}").state == "succeeded"
    member.put("old", OLD)
    return member


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
    a = member.member.identifier
    with ExitStack() as stack:
        go = held(stack, member)
        service.ask(json.dumps({"node": a, "id": "running"}))
        wait_until(lambda: service.known("running") and service.coordinator.job("running").state == "running")
        asks = {"every": {}, "old": {"pid": "old"}, "none": {"pid": "nowhere"}}
        for name, ask in asks.items():
            service.ask(json.dumps({"node": a, "id": name} | ask))
        wait_until(lambda: all(service.known(name) for name in asks))
        go.set()
        jobs = {name: service.ended(name) for name in asks}
    assert len({job.id for job in jobs.values()}) == 1
    result = jobs["every"].result
    assert (jobs["every"].state, result["outcome"], result["pids"]["old"]) == ("succeeded", "succeeded", "stored")
    assert "404" in result["pids"]["nowhere"]
    assert "old" in service.pids(a)
    member.hook = lambda request: None
    assert told(service.call("refresh", a, "--why", "a test", "--pid", "old", "--wait")) == f"{a}: old is stored"
    done = service.call("refresh", a, "--why", "a test", "--pid", "nowhere", "--wait")
    assert (done.returncode, done.stdout) == (1, "")
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"Error: {a}: nowhere is not stored: ")
    assert "no object nowhere" in said


def test_who_asks_for_an_object_hears_that_it_is_stored_though_the_increment_beside_it_fails(
    service: Service, member: MemberServer
) -> None:
    a = member.member.identifier

    def no_listing(request: Request) -> None:
        if request.path[0] == "object":
            raise ConnectionAbortedError  # the server closes the connection

    pool = ThreadPoolExecutor(1)
    with service.coordinator.lock(f"sync/{a}"):
        service.ask(json.dumps({"node": a, "id": "all"}))
        wait_until(lambda: service.known("all"))
        done = pool.submit(service.call, "refresh", a, "--why", "a test", "--pid", "old", "--wait")
        wait_until(lambda: (collects := service.coordinator.job("all").collects) and collects.calls == 2)
        member.hook = no_listing
    assert service.ended("all").state == "failed"
    assert told(done.result()) == f"{a}: old is stored"


def test_a_complete_pass_can_be_asked_for_and_a_mistyped_pid_forgotten(service: Service, member: MemberServer) -> None:
    a = member.member.identifier
    assert told(service.call("refresh", a, "--why", "a test", "--complete", "--wait")) == (
        f"{a}: succeeded: 31 listed, 1 stored, 30 unchanged, 0 failed"
    )
    assert service.pids(a) == member.pids
    assert service.call("refresh", a, "--why", "a test", "--pid", "mistyped", "--wait").returncode == 1
    assert told(service.call("members", "forget", a, "mistyped")).startswith(f"{a}: mistyped is forgotten")
    assert service.catalog.failed(a) == []
    assert "mistyped is no failed object" in refused(service.call("members", "forget", a, "mistyped"))
    for pid in ("mistyped", "mistyped/2"):
        assert service.call("refresh", a, "--why", "a test", "--pid", pid, "--wait").returncode == 1
    assert "2 failed objects are forgotten" in told(service.call("members", "forget", a, "--all"))
    assert service.catalog.failed(a) == []
    assert "give either PID or --all" in service.call("members", "forget", a).stderr


def test_an_error_of_a_member_is_one_line_in_the_log_beside_its_alert(service: Service, member: MemberServer) -> None:
    a, before = member.member.identifier, len(service.log("one"))
    member.hook = lambda request: failure(401, "NotAuthorized", "you may not list")
    service.ask(json.dumps({"node": a, "id": "refused"}))
    assert "you may not list" in str(service.ended("refused").error)
    wait_until(lambda: "alert (failed): job refused" in service.log("one"))
    said = service.log("one")[before:]
    lines = [line for line in said.splitlines() if "you may not list" in line]
    assert [line.count("raised expected") for line in lines] == [1, 0], "one of the task, and the alert"
    assert "Traceback" not in said


def test_a_refresh_message_brings_a_sync_forward_whose_last_action_is_the_nodelist(
    service: Service, members: Members
) -> None:
    a, b = ids(members)
    service.ask(json.dumps({"node": a, "id": "mine", "reason": "a test"}))
    job = service.ended("mine")
    assert (job.state, job.result["outcome"], job.result["stored"]) == ("succeeded", "succeeded", 30)
    assert (job.result["store"], job.progress) == (SOON, (30, 30))
    assert service.pids(a) == members[0].pids
    newest = instants.floor(max(date for date, _ in members[0].entries(instants.NEVER, instants.now())))
    wait_until(lambda: harvested(service, a) == newest, what=lambda: service.log("one"))
    assert service.pids(b) == set()
    assert a in service.settings.nodelist.read_text()


def test_one_bad_member_harms_no_other_and_its_error_is_its_own(service: Service, members: Members) -> None:
    a, b = ids(members)

    def broken(request: Request) -> Reply:
        return failure(500, "ServiceFailure", "no disk")

    members[0].hook = broken
    for member_id in (a, b):
        service.ask(json.dumps({"node": member_id, "id": member_id}))
    bad, good = service.ended(a), service.ended(b)
    assert (bad.state, good.state, good.result["stored"]) == ("failed", "succeeded", 20)
    assert bad.error
    assert "500" in bad.error["message"]
    assert a in bad.error["message"]
    assert harvested(service, a) == instants.NEVER
    wait_until(lambda: harvested(service, b) > instants.now() - timedelta(hours=1))


def test_a_request_for_nobody_we_know_is_set_aside_with_the_reason(service: Service, members: Members) -> None:
    service.ask('{"node": "urn:node:nobody"}')
    service.ask('{"members": "urn:node:mnA"}')
    with service.redis.client(1) as broker:
        for place, said in (("dead", "urn:node:nobody"), ("unreadable", "members")):
            aside = f"{QUEUE}.{place}"
            wait_until(partial(broker.llen, aside), what=lambda: service.log("one")[-2500:])
            assert [said in json.loads(letter)["reason"] for letter in broker.lrange(aside, 0, -1)] == [True]


def test_who_asks_from_python_can_wait_for_what_comes_of_it(service: Service, members: Members) -> None:
    a, _ = ids(members)
    job_id = service.shell(f"import tasks; print(tasks.refresh({a!r}, reason='a test'))")
    job = service.ended(job_id)
    assert (job.state, job.keys, job.result["stored"]) == ("succeeded", (f"sync/{a}",), 30)


def test_the_complete_pass_of_each_member_is_on_the_members_own_lane(service: Service, members: Members) -> None:
    a, b = ids(members)
    found = service.shell("from tasks.sync import complete_passes as all_of_them; print(sorted(all_of_them()))")
    assert found == str([a, b])
    for member_id in (a, b):
        wait_until(lambda member_id=member_id: service.coordinator.lane(f"sync/{member_id}").length == 0)  # type: ignore[misc]
        wait_until(lambda member_id=member_id: completed(service, member_id))  # type: ignore[misc]
