"""The whole service on PostgreSQL: workers, a beat, a harvest by the clock, what is gone, the commands."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest

from examples.demo.member_server import MemberServer, Request
from tasks import instants
from tasks.member_node.member import MemberSchedule
from tests.fleet.tasks.service import Service, beat
from tests.harness.command import listed, told
from tests.harness.postgres import PostgresServer
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

A = "urn:node:mnA"


@pytest.fixture
def member() -> Iterator[MemberServer]:
    often = MemberSchedule(sec="0/2", min="*", hour="*", mday="*", mon="*", wday="?", year="*")
    with MemberServer(A, schedule=often) as server:
        server.fill(40)
        yield server


def test_nodes_of_two_hosts_and_a_beat_harvest_into_one_catalog(
    own_redis: RedisServer, database: str, member: MemberServer, tmp_path: Path
) -> None:
    with Service(own_redis, tmp_path, [member], TASKS_DATABASE_URL=database) as service:
        for number in (1, 2):
            service.environ["TASKS_HOST"] = f"host{number}"
            service.node(f"cn{number}", 1)
        with beat(service, "beat"):  # the member's own schedule
            wait_until(lambda: service.pids(A) == member.pids, 60, lambda: service.log("beat")[-2000:])
            member.put("doi:10.5/new", instants.now() - timedelta(seconds=30))
            wait_until(lambda: "doi:10.5/new" in service.pids(A), 60, lambda: service.log("cn1")[-2000:])
        [state] = listed(service.call("members", "--json"))
        assert (state["member"], state["objects"], state["failed"], state["outcome"]) == (A, 41, 0, "succeeded")
        rows = listed(service.call("catalog", A, "--json"))
        assert {row["pid"] for row in rows} == member.pids
        assert "doi:10.5/000007" in told(service.call("catalog", A))
        member.remove("doi:10.5/000007")
        job_id = service.shell(f"from tasks.sync import synchronize; print(synchronize({A!r}, complete=True).id)")
        assert service.ended(job_id).result["gone"] == 1
        assert "doi:10.5/000007" not in told(service.call("catalog", A))
        [row] = listed(service.call("catalog", A, "--gone", "--json"))
        assert (row["pid"], row["gone_since"] > row["modified"]) == ("doi:10.5/000007", True)
        assert "GONE SINCE" in told(service.call("catalog", A, "--gone"))
        [state] = listed(service.call("members", "--json"))
        assert (state["objects"], state["gone"]) == (40, 1)
        assert not list(tmp_path.glob("catalog.sqlite*"))


def test_a_sync_during_which_postgres_dies_fails_and_the_next_one_harvests_all(
    own_redis: RedisServer, member: MemberServer, tmp_path: Path
) -> None:
    asked, go = Event(), Event()

    def slow(request: Request) -> None:
        if request.path[0] == "meta":
            asked.set()
            go.wait(30)

    with PostgresServer() as server, server.database() as name:
        environ = {"TASKS_DATABASE_URL": server.url(name), "TASKS_PAGE_SIZE": "10"}
        with Service(own_redis, tmp_path, [member], **environ) as service:
            service.node("cn1", 1)
            member.hook = slow
            service.ask(json.dumps({"node": A, "id": "first"}))
            assert asked.wait(60)
            server.kill()
            go.set()
            job = service.ended("first")
            assert job.state == "failed"
            assert "OperationalError" in json.dumps(job.error)
            server.start()
            service.ask(json.dumps({"node": A, "id": "second"}))
            assert service.ended("second").state == "succeeded"
            assert service.pids(A) == member.pids
