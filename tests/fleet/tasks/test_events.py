"""A declared task hears of each object, in the order of each pid, whoever is killed meanwhile."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from random import Random

import psutil
import pytest
from sqlalchemy import update

from examples.demo.member_server import MemberServer
from tasks import instants
from tasks.catalog.events import ObjectEvent, ObjectEvents
from tasks.catalog.schema import events as table
from tests.fleet.tasks.conftest import A
from tests.fleet.tasks.service import Service, beat
from tests.harness.command import listed, loaded, refused, told
from tests.harness.long import long
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

PID = "doi:10.5/a b+ü"


class Hearing(Service):
    """A service whose events go to a task with a queue of its own."""

    def __init__(self, redis: RedisServer, folder: Path, members: list[MemberServer], **settings: str) -> None:
        heard = {
            "HEARD": str(folder / "heard"),
            "TASKS_ON_OBJECT": "tests.harness.apps.hears.on_object",
            "TASKS_MARGIN": "0",
        }
        super().__init__(redis, folder, members, **heard | settings)
        self.events = ObjectEvents(self.catalog.engine)

    def both(self) -> psutil.Process:
        """One node that harvests and hears."""
        return self.node("one", queue="celery,hears")

    def hearer(self, name: str = "hears") -> psutil.Process:
        return self.node(name, queue="hears")

    @property
    def heard(self) -> list[list[object]]:
        file = self.folder / "heard"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def harvest(self, complete: bool = False) -> None:
        job_id = f"sync-{instants.full(instants.now())}"
        self.ask(json.dumps({"node": A, "id": job_id, "complete": complete}))
        assert self.ended(job_id).state == "succeeded"

    def sent(self, value: object) -> None:
        """As if the events that wait had been sent then, or never."""
        with self.catalog.engine.begin() as connection:
            connection.execute(update(table).where(table.c.delivered.is_(None)).values(sent=value))

    def send(self) -> None:
        """What a beat does each 15 seconds."""
        job_id = self.shell("from tasks.events import *; print(coordinator.submit(LANE, send_events.s()).id)")
        assert self.ended(job_id).state == "succeeded"

    @property
    def waiting(self) -> list[ObjectEvent]:
        return [event for event in self.events.after(None, 10**6) if event.delivered is None]

    def delivered(self, timeout: float = 60) -> None:
        wait_until(lambda: self.events.last() and not self.waiting, timeout, lambda: f"{self.waiting[:3]}")

    def all_delivered(self, timeout: float) -> list[ObjectEvent]:
        """Return all events once they are delivered, also those that a sync stores meanwhile."""
        written, last = list[ObjectEvent](), -1
        while len(written) != last:
            last = len(written)
            self.delivered(timeout)
            written = self.events.after(0, 10**7)
            wait_until(lambda written=written: written[-1].number in {one[0] for one in self.heard}, timeout)
        return written


@pytest.fixture
def member() -> Iterator[MemberServer]:
    with MemberServer(A) as server:
        server.put(PID, instants.now() - timedelta(minutes=1))
        yield server


Begin = Callable[..., Hearing]


@pytest.fixture
def begin(own_redis: RedisServer, tmp_path: Path, member: MemberServer) -> Iterator[Begin]:
    """Begins the service of one member with one object."""
    with ExitStack() as stack:
        yield lambda **env: stack.enter_context(Hearing(own_redis, tmp_path, [member], **env))


def test_what_becomes_of_an_object_is_heard_and_listed_from_a_number_on(begin: Begin, member: MemberServer) -> None:
    service = begin()
    service.both()
    service.harvest()
    wait_until(lambda: len(service.heard) == 1)
    member.put(PID)
    service.harvest()
    member.remove(PID)
    member.put("other", instants.now() - timedelta(minutes=1))
    service.harvest(complete=True)
    service.delivered()
    assert service.heard[:2] == [[1, A, PID, "new"], [2, A, PID, "changed"]]
    assert sorted(service.heard[2:]) == [[3, A, "other", "new"], [4, A, PID, "gone"]]
    rows = listed(service.call("events", "--json"))
    assert [[row["number"], row["member"], row["pid"], row["kind"]] for row in rows] == sorted(service.heard)
    page = loaded(service.call("events", "--after", "1", "--most", "2", "--json"))
    assert ([row["number"] for row in page["events"]], page["after"], page["last"]) == ([2, 3], "3", 4)
    assert told(service.call("events", "--after", "3")).splitlines()[1].split()[0] == "4"
    assert "there is no event 5 yet" in refused(service.call("events", "--after", "5"))
    read = service.shell("from tasks import events; print([one.kind for one in events.after(2)], events.last())")
    assert read == "['new', 'gone'] 4"


def test_without_a_declared_task_events_are_numbered_and_one_declared_later_hears_of_those_that_are_kept(
    begin: Begin, member: MemberServer
) -> None:
    service = begin()
    node = service.node("one", TASKS_ON_OBJECT="")
    service.harvest()
    assert (len(service.waiting), service.coordinator.lane(f"object/{PID}").state) == (1, "empty")
    end(node)
    service.node("two")
    service.send()  # no node has the task's queue yet
    said = service.call("doctor", COORDINATOR_LONG_WAIT="0.1").stdout
    assert "the task has not received 1 events of objects, the first of 20" in said
    assert service.coordinator.lane(f"object/{PID}").jobs == (service.waiting[0].id,)
    service.hearer()
    service.delivered()
    assert service.heard == [[1, A, PID, "new"]]


def end(process: psutil.Process) -> None:
    """Kill a node and all of its processes."""
    for member in [*process.children(recursive=True), process]:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait(60)


def test_an_event_is_submitted_again_until_it_is_delivered_and_redis_may_forget_it(
    begin: Begin, member: MemberServer
) -> None:
    service = begin()
    service.node("one")
    service.harvest()
    wait_until(lambda: service.waiting[0].sent)
    member.put(PID)
    service.harvest()
    (first, second) = service.waiting
    for sent in (None, instants.now() - timedelta(minutes=2)):  # the sender died before it noted it; it is long ago
        service.sent(sent)
        service.send()
        assert service.coordinator.lane(f"object/{PID}").jobs == (first.id,)
    service.coordinator.cancel(first.id, why="as if Redis had forgotten it", by="a test")
    with service.redis.client(0) as client:
        client.delete(service.coordinator.store.key("job", first.id))
    service.sent(instants.now() - timedelta(minutes=2))
    service.send()
    service.hearer()
    service.delivered()
    assert service.heard == [[1, A, PID, "new"], [2, A, PID, "changed"]]
    assert service.coordinator.job(second.id).state == "succeeded"


def test_an_event_whose_task_fails_holds_back_those_of_its_pid_and_a_cancel_leaves_it_out(
    begin: Begin, member: MemberServer
) -> None:
    service = begin(COORDINATOR_MAX_LIFETIME="8", COORDINATOR_LONG_WAIT="1")
    broken = service.folder / "broken"
    broken.touch()
    service.both()
    service.harvest()
    member.put(PID)
    member.put("other", instants.now() - timedelta(minutes=1))
    service.harvest()
    first, other = service.waiting[0], next(event for event in service.waiting if event.pid == "other")
    wait_until(lambda: service.known(other.id))
    for job_id in (first.id, other.id):
        assert service.ended(job_id).state == "expired"
    assert "[events.late]" in service.call("doctor").stdout
    broken.unlink()
    service.coordinator.retry(first.id, why="a test")
    assert service.ended(first.id).state == "succeeded"
    service.sent(instants.now() - timedelta(minutes=2))
    service.send()
    service.delivered()
    assert sorted(line[2:] for line in service.heard) == [[PID, "changed"], [PID, "new"], ["other", "new"]]
    assert "[events.late]" not in service.call("doctor").stdout
    broken.touch()
    member.put("other")
    service.harvest()
    member.put("other")
    service.harvest()
    left_out = service.waiting[0]
    wait_until(lambda: service.known(left_out.id) and service.coordinator.job(left_out.id).attempt > 0)
    service.coordinator.cancel(left_out.id, why="nobody wants it", by="a test")
    broken.unlink()
    service.sent(instants.now() - timedelta(minutes=2))
    service.send()
    service.delivered()
    assert [line[0] for line in service.heard if line[0] > 3] == [5]


MEMBERS, OBJECTS, KILLS = long((4, 40, 5), (20, 5_000, 40))


@pytest.mark.timeout(long(300, 3600))
def test_each_event_is_heard_once_by_its_number_in_the_order_of_its_pid_though_nodes_and_redis_are_killed(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    draw = Random(1)
    settings = {"COORDINATOR_KEEP_MOST": "1000", "COORDINATOR_LOCK_TTL": "3"}
    with ExitStack() as stack:
        servers = [stack.enter_context(MemberServer(f"urn:node:mn{number}")) for number in range(MEMBERS)]
        for server in servers:
            server.fill(OBJECTS, prefix=f"{server.member.identifier}/")
        service = stack.enter_context(Hearing(own_redis, tmp_path, servers, **settings))
        nodes = {name: service.node(name) for name in ("cn1", "cn2")} | {
            name: service.hearer(name) for name in ("hears1", "hears2")
        }
        stack.enter_context(beat(service, "beat"))
        memory = list[tuple[float, float]]()
        for number in range(KILLS):
            part = (number + 1) * 2 * MEMBERS * OBJECTS // (KILLS + 1)  # of the objects that are stored, then delivered
            wait_until(lambda part=part: 2 * service.events.last() - service.events.waiting()[0] >= part, long(60, 900))
            for server in servers:
                for pid in draw.sample(sorted(server.pids), 3):
                    server.put(pid)
            name = draw.choice([*nodes, "redis"])
            if name == "redis":
                own_redis.kill()
                own_redis.start()
            else:
                end(nodes[name])
                nodes[name] = service.node(name) if name.startswith("cn") else service.hearer(name)
            memory.append(megabytes(own_redis, nodes.values()))
        wait_until(lambda: service.events.last() >= MEMBERS * OBJECTS, long(60, 600))
        written = service.all_delivered(long(90, 1800))
        assert len(service.pids(servers[0].member.identifier)) == OBJECTS
        check(written, service.heard)
        of_redis, of_processes = zip(*memory, strict=True)
        print(f"{len(written)} events, heard {len(service.heard)} times; MB of Redis, of the largest process: {memory}")
        assert max(of_redis) < 100, memory  # it indexes the newest 100,000 runs
        assert max(of_processes) < 1.3 * min(of_processes), memory


def megabytes(redis: RedisServer, nodes: Iterable[psutil.Process]) -> tuple[float, float]:
    """What Redis uses, and the largest process of the nodes."""
    sizes = [0]
    for node in nodes:
        for process in [node, *node.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                sizes.append(process.memory_info().rss)
    with redis.client(0) as client:
        return round(client.info("memory")["used_memory"] / 2**20, 1), round(max(sizes) / 2**20, 1)


def check(written: list[ObjectEvent], heard: list[list[object]]) -> None:
    """The numbers have no gap. Who skips repeats by the number has heard each event once, in the order of its pid."""
    assert [event.number for event in written] == list(range(1, len(written) + 1))
    taken = defaultdict[object, list[object]](list)
    for number, _, pid, _ in heard:
        if not taken[pid] or number > taken[pid][-1]:  # type: ignore[operator]
            taken[pid].append(number)
    expected = defaultdict[object, list[object]](list)
    for event in written:
        expected[event.pid].append(event.number)
    assert taken == expected
