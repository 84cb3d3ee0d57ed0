"""Two hosts share a Redis and a PostgreSQL. One is cut off under load and comes back."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest

from examples.demo.member_server import MemberServer, Request
from tasks import instants
from tasks.member_node.member import MemberSchedule
from tasks.nodelist.xml_format import write_nodelist
from tests.fleet.tasks.hosts import Cables, Host, in_reach, proxied
from tests.fleet.tasks.service import Service, beat
from tests.harness.long import long
from tests.harness.postgres import PostgresServer
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

A, B = "urn:node:mnA", "urn:node:mnB"
OFTEN = MemberSchedule(sec="0/3", min="*", hour="*", mday="*", mon="*", wday="?", year="*")
TIMES = {
    "COORDINATOR_LOCK_TTL": "2",
    "COORDINATOR_NODE_TTL": "1.5",
    "COORDINATOR_HEARTBEAT": "0.5",
    "COORDINATOR_SWEEP": "0.2",
    "COORDINATOR_TIMEOUT": "1",
    "TASKS_READ_TIMEOUT": "200",
    "TASKS_REQUEST_TIMEOUT": "200",
}
# Each writing transaction of a sync names its fence: PostgreSQL notes the host that it came from.
AUDIT = """
CREATE TABLE audit (number bigserial, member text, fence bigint, host text);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO audit (member, fence, host) VALUES (NEW.member, NEW.fence, current_setting('application_name'));
    RETURN NEW;
END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE OF fence ON members FOR EACH ROW EXECUTE FUNCTION audit();
"""


@pytest.fixture
def members() -> Iterator[list[MemberServer]]:
    with MemberServer(A, schedule=OFTEN) as one, MemberServer(B, schedule=OFTEN) as two:
        for server in (one, two):
            server.fill(30)
        yield [one, two]


class Trial:
    """Two hosts, each with a node and a beat; `run` cuts the first one off for so many seconds."""

    def __init__(self, service: Service, members: Sequence[MemberServer], hosts: Sequence[Host]) -> None:
        self.service, self.members = service, members
        self.near, self.far = hosts
        self.asked: list[str] = []
        self.go = Event()

    def run(self, seconds: float) -> None:
        with ExitStack() as stack:
            stack.callback(self.go.set)
            for host in (self.near, self.far):
                self.service.node(host.name, launcher=host.launcher, **host.environ)
                name = f"beat-{host.name}"
                stack.enter_context(beat(self.service, name, launcher=host.launcher, **host.environ))
            self.all_is_harvested()
            held = self.held_on(self.far)
            self.far.cut()
            until = time.monotonic() + seconds
            while time.monotonic() < until:  # the load
                self.change()
                self.all_is_harvested()
            job = self.service.ended(held)
            assert (job.state, job.node) == ("succeeded", f"{self.near.name}@test")
            assert job.losses >= 1
            self.go.set()
            self.far.mend()
            self.works_alone(self.far, without=self.near)
            self.all_is_harvested()
        assert {self.service.ended(job_id).state for job_id in self.asked} == {"succeeded"}

    def change(self) -> None:
        """A new object of each member, and a request for it."""
        for server in self.members:
            server.put(f"doi:10.5/new-{len(server):06d}", instants.now() - timedelta(seconds=30))
            self.ask(server.member.identifier)

    def ask(self, member_id: str) -> str:
        self.asked.append(f"asked-{len(self.asked)}")
        self.service.ask(json.dumps({"node": member_id, "id": self.asked[-1]}))
        return self.asked[-1]

    def all_is_harvested(self) -> None:
        for server in self.members:
            member_id = server.member.identifier
            wait_until(lambda: self.service.pids(member_id) == server.pids, 60, self.logs)  # noqa: B023

    def held_on(self, host: Host) -> str:
        """The id of a sync of the first member that goes on there until `go` is set."""
        began = Event()

        def hold(request: Request) -> None:
            if request.path[-1] == "doi:10.5/held" and not began.is_set():
                began.set()
                self.go.wait(300)

        server = self.members[0]
        server.hook = hold
        self.only(host)
        server.put("doi:10.5/held", instants.now() - timedelta(seconds=30))
        assert began.wait(60), self.logs()
        job_id = self.service.coordinator.lane(f"sync/{A}").jobs[0]
        assert self.service.coordinator.job(job_id).node == f"{host.name}@test"
        self.service.coordinator.undrain(f"{self.near.name}@test")
        return job_id

    def only(self, host: Host) -> None:
        """The other host's node is given nothing new, and has done what it had."""
        other = f"{(self.near if host is self.far else self.far).name}@test"
        coordinator = self.service.coordinator
        coordinator.drain(other, why="a test")
        wait_until(lambda: not [node for node in coordinator.nodes() if node.name == other and node.running])

    def works_alone(self, host: Host, without: Host) -> None:
        coordinator, name = self.service.coordinator, f"{host.name}@test"
        wait_until(lambda: name in [node.name for node in coordinator.nodes() if node.alive], 90, self.logs)
        self.only(host)
        self.members[1].put("doi:10.5/after", instants.now() - timedelta(seconds=30))
        job = self.service.ended(self.ask(B), 90)
        assert (job.state, job.node) == ("succeeded", name), self.logs()
        coordinator.undrain(f"{without.name}@test")

    def logs(self) -> str:
        return "\n".join(self.service.log(host.name)[-2500:] for host in (self.near, self.far))


def one_host_wrote_under_each_fence_and_none_went_back(postgres: PostgresServer, database: str) -> int:
    """Returns how many fences there were."""
    with postgres.connect(database) as connection:
        rows = connection.execute("SELECT member, fence, host FROM audit WHERE fence > 0 ORDER BY number").fetchall()
    hosts: dict[tuple[str, int], set[str]] = {}
    last: dict[str, int] = {}
    for member, fence, host in rows:
        hosts.setdefault((member, fence), set()).add(host)
        assert last.get(member, 0) <= fence, rows
        last[member] = fence
    assert all(len(found) == 1 for found in hosts.values()), hosts
    assert {host for found in hosts.values() for host in found} == {"host1", "host2"}
    return len(hosts)


def cut_off(
    redis: RedisServer,
    postgres: PostgresServer,
    members: Sequence[MemberServer],
    folder: Path,
    cables: Cables,
    seconds: float,
) -> None:
    """The whole trial on a database of its own. Members are known by the address at which the hosts reach them."""
    with postgres.database() as database, ExitStack() as stack:
        environ = TIMES | {"TASKS_DATABASE_URL": postgres.url(database)}
        service = stack.enter_context(Service(redis, folder, members, **environ))
        with postgres.connect(database) as connection:
            connection.execute(AUDIT)
        hosts = stack.enter_context(cables(("host1", "host2"), redis, postgres, database, folder))
        for host in hosts:
            host.environ["TASKS_NODELIST_PATH"] = str(service.settings.nodelist)
        if (address := hosts[0].servers) != "127.0.0.1":
            there = [in_reach(stack, server, address) for server in members]
            service.settings.nodelist.write_bytes(write_nodelist(there))
        Trial(service, members, hosts).run(seconds)
        assert one_host_wrote_under_each_fence_and_none_went_back(postgres, database) > 4


def test_a_host_that_is_cut_off_under_load_comes_back_and_nothing_is_lost_or_done_twice(
    own_redis: RedisServer, postgres_server: PostgresServer, members: list[MemberServer], tmp_path: Path
) -> None:
    cut_off(own_redis, postgres_server, members, tmp_path, proxied, long(6, 60))
