"""A graph of jobs on real workers: each runs after its causes, and gets a result by name, whoever is killed."""

import os
from collections import Counter
from random import Random
from typing import Any

from tests.harness.fleet import Fleet, kill_all
from tests.harness.standing import Node
from tests.harness.waiting import wait_until
from tests.harness.warm import ROOT, python

SHORT: dict[str, Any] = {"lock_ttl": 5, "node_ttl": 4, "sweep": 0.2, "heartbeat": 0.5}
NODE = Node("depot", 3, settings=SHORT)
OTHER = "one@test"
JOBS = 1000

# Submits the graph, and is killed once 400 of its jobs are written.
DYING = """
import os, signal
from coordinator.core.lanes.client import LaneClient
from tests.fleet.shared.test_after import graph
from tests.harness.apps import depot

usual, chunks = LaneClient._submit_chunk, []

def submit_chunk(self, chunk):
    found = usual(self, chunk)
    chunks.append(found)
    if len(chunks) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return found

LaneClient._submit_chunk = submit_chunk
depot.coordinator.submit_many(graph(depot))
"""


def causes_of(number: int) -> list[int]:
    """Up to three of the sixty before it."""
    chance, before = Random(number), range(max(0, number - 60), number)
    return chance.sample(before, min(len(before), chance.randrange(4)))


def graph(depot: Any) -> list[tuple[str, Any, dict[str, Any]]]:
    """In an order by chance, the same in each process. A job of one cause gets its result, and adds its
    name.
    """
    jobs = []
    for number in range(JOBS):
        causes = [f"n{one}" for one in causes_of(number)]
        call = depot.step.s(name=f"n{number}") if len(causes) == 1 else depot.step.s([], name=f"n{number}")
        options: dict[str, Any] = {"job_id": f"n{number}"}
        if causes:
            options["after"] = {"before": causes[0]} if len(causes) == 1 else causes
        jobs.append((f"lane/{number % 40}", call, options))
    Random(7).shuffle(jobs)
    return jobs


def test_each_job_of_a_graph_runs_once_after_its_causes_though_client_and_node_are_killed(fleet: Fleet) -> None:
    first = fleet.worker("first", 3, app="depot")
    fleet.coordinator.drain(OTHER, why="only the other one is to work")
    assert python(["-c", DYING], ROOT, os.environ | fleet.environ).returncode == -9
    assert fleet.coordinator.counts()["created"] == 400
    wait_until(lambda: len(fleet.stamps(what="end")) > 100, 60, fleet.logs)
    kill_all(first)
    fleet.coordinator.undrain(OTHER)
    submitted = fleet.depot.coordinator.submit_many(graph(fleet.depot))
    assert Counter(one.outcome == "duplicate" for one in submitted) == {True: 400, False: 600}
    jobs = {job_id: fleet.coordinator.wait(job_id, 120) for job_id in (f"n{number}" for number in range(JOBS))}
    assert Counter(job.state for job in jobs.values()) == {"succeeded": JOBS}
    assert {job.attempt - job.losses for job in jobs.values()} == {1}
    places: dict[str, list[int]] = {}
    for place, stamp in enumerate(fleet.stamps()):
        places.setdefault(stamp.name, []).append(place)
    for number in range(JOBS):
        name, causes = f"n{number}", causes_of(number)
        assert len(places[name]) == 2 or jobs[name].losses, name
        assert all(max(places[f"n{cause}"]) < min(places[name]) for cause in causes), name
        before = jobs[f"n{causes[0]}"].result if len(causes) == 1 else []
        assert jobs[name].result == [*before, name]
    assert fleet.coordinator.counts()["blocked"] == 0


def test_events_let_jobs_go_on_and_their_values_are_handed_on(fleet: Fleet) -> None:
    depot = fleet.depot
    event = depot.coordinator.event("approved/42")
    job = depot.coordinator.submit("a", depot.step.s(name="last"), after={"before": event})
    assert job.state == "blocked"
    event.set(["first"])
    assert job.get(timeout=60) == ["first", "last"]
