"""A node whose copy of the nodelist may be older than the others' takes no sync."""

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import psutil
import pytest

from examples.demo.member_server import Reply, Request
from tasks.documents.document import Document
from tests.fleet.tasks.conftest import A, B, Members
from tests.fleet.tasks.service import Service, fill_disk, maintenance_of
from tests.harness.command import told
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until


@pytest.fixture
def service(
    own_redis: RedisServer, tmp_path: Path, members: Members
) -> Iterator[tuple[Service, psutil.Process, psutil.Process]]:
    """Two nodes in the replica set; the processes are the first node and the second one's maintenance."""
    with Service(own_redis, tmp_path, members, TASKS_REFRESH_INTERVAL="3600") as here:
        first = here.node("one")
        maintenance = maintenance_of(here.node("two"))
        document = Document(here.coordinator.store, "nodelist")
        wait_until(lambda: document.pointer()[0] and document.members() == ["one@test", "two@test"])
        yield here, first, maintenance


def test_a_node_that_is_out_of_the_replica_set_takes_no_sync_until_it_is_in_again(
    service: tuple[Service, psutil.Process, psutil.Process],
) -> None:
    here, first, _ = service
    (log,) = (here.folder / "replicas" / "coord" / "two@test" / "nodelist").glob("*.log")
    log.unlink()
    log.mkdir()  # nothing can be written in its place
    told(here.call("members", "suspend", A, "--why", "a test"))
    nodes = {node.name: node.labels for node in here.coordinator.nodes()}
    assert nodes == {"one@test": ("document:nodelist",), "two@test": ()}
    out = "two@test is out of the replica set of nodelist: it cannot write its disk"
    assert out in here.call("nodes").stderr
    status = here.call("status")
    assert (status.returncode, "[document.outside] (document nodelist) two@test is out" in status.stderr) == (0, True)

    first.terminate()
    here.ask(json.dumps({"node": B, "id": "waits"}))
    wait_until(lambda: here.known("waits"), 60)
    wait_until(lambda: [node.name for node in here.coordinator.nodes()] == ["two@test"], 60)
    status = here.call("status")
    assert (status.returncode, "no node has the label document:nodelist" in status.stderr) == (1, True)
    why = told(here.call("why", "waits"))
    assert "No node has the label document:nodelist" in why
    assert out in why

    log.rmdir()
    assert here.ended("waits", 60).result["stored"] == 20
    assert here.call("status").returncode == 0


def test_a_sync_under_way_on_a_node_that_is_put_out_stops_before_its_next_write_and_runs_elsewhere(
    service: tuple[Service, psutil.Process, psutil.Process], members: Members
) -> None:
    here, _, maintenance = service
    reached, go = Event(), Event()

    def slow(request: Request) -> Reply | None:
        if request.path[0] == "meta":
            reached.set()
            go.wait(60)
        return None

    members[1].hook = slow
    told(here.call("nodes", "drain", "one@test", "--why", "so the other one takes it"))
    here.ask(json.dumps({"node": B, "id": "moves"}))
    assert reached.wait(60)
    assert here.coordinator.job("moves").node == "two@test"
    fill_disk(maintenance)
    told(here.call("members", "suspend", A, "--why", "a test"))
    assert Document(here.coordinator.store, "nodelist").members() == ["one@test"]
    go.set()
    wait_until(lambda: here.coordinator.job("moves").state != "running")
    assert not here.pids(B), "nothing was written there"
    told(here.call("nodes", "undrain", "one@test", "--why", "so it takes over"))
    job = here.ended("moves", 60)
    assert (job.state, job.result["stored"]) == ("succeeded", 20)
    assert "node two@test is out of the replica set of the document nodelist" in here.log("two")
