"""Nodes of a swarm do what nodes do: they share jobs, take over from the dead, fall silent, and leave."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from proof.history import History, Run
from proof.swarm import queue_of
from proof.swarm.fleet import Swarm
from tests.harness.installation import Installation
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_for_count, wait_until


class _Shop(Installation):
    apps = "proof"


class Played:
    """A swarm on the test's Redis, and what its tasks wrote down."""

    def __init__(self, installation: Installation, swarm: Swarm) -> None:
        self.shop, self.swarm = installation.app("shop"), swarm
        self.queue = queue_of(installation.prefix)
        wait_until(lambda: self.nodes().keys() >= {*swarm.nodes}, what=lambda: f"{[*self.nodes()]} are up")

    def nodes(self) -> dict[str, str]:
        """Those that live, and which life each of them is in."""
        store = self.shop.coordinator.store
        living = [node.name for node in self.shop.coordinator.nodes() if node.alive]
        return {name: str(store.read("HGET", store.key("node", name), "incarnation")) for name in living}

    def submit(self, keys: list[str], seconds: float = 0.0) -> list[str]:
        """A job for each of these keys, in this order."""
        names = [f"{place:03}" for place in range(len(keys))]
        call = self.shop.work.s(seconds).set(queue=self.queue)
        self.shop.coordinator.submit_many(
            [([key], call, {"job_id": name}) for key, name in zip(keys, names, strict=True)]
        )
        return names

    def runs(self, ended: bool = True) -> list[Run]:
        history = History.from_lines(self.shop.witness.lines(), {})
        return [run for run in history.runs if run.ended or not ended]


@pytest.fixture
def play(redis_server: RedisServer, prefix: str, tmp_path: Path) -> Callable[..., Any]:
    @contextmanager
    def played(*sizes: int, **settings: Any) -> Iterator[Played]:
        times = {"sweep": 0.3, "heartbeat": 1, "node_ttl": 3, "lock_ttl": 3, **settings}
        with _Shop(redis_server, prefix, **times) as installation:
            swarm = Swarm(tmp_path, installation.environ, sizes)
            try:
                yield Played(installation, swarm)
            finally:
                swarm.end()

    return played


def node_of(run: Run) -> str:
    return run.begun.process.rpartition("/")[2].rpartition(".")[0]


def test_ten_nodes_in_a_process_run_two_hundred_jobs_once_each_and_in_the_order_of_their_lanes(
    play: Callable[..., Any],
) -> None:
    with play(10) as swarm:
        keys = [f"s/{place % 20}" for place in range(200)]
        names = swarm.submit(keys)
        wait_for_count(lambda: len(swarm.runs()), 200)
        runs, line, ran = swarm.runs(), defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for key, name in zip(keys, names, strict=True):
            line[key].append(name)
        for run in runs:
            ran[run.keys[0]].append(run.job)
        assert ran == line
        assert len({*map(node_of, runs)}) > 1


def test_what_a_killed_third_of_a_swarm_was_at_runs_again_on_the_others(play: Callable[..., Any]) -> None:
    with play(3, 3, 3) as swarm:
        dead, *living = swarm.swarm.parts
        names = swarm.submit([f"s/{place}" for place in range(60)], 1.0)
        wait_until(lambda: {*dead.nodes} & {node_of(run) for run in swarm.runs(ended=False) if not run.ended})
        dead.kill()
        left = {run.job: run.fence for run in swarm.runs(ended=False) if not run.ended and node_of(run) in dead.nodes}
        wait_for_count(lambda: len({run.job for run in swarm.runs()}), len(names))
        again = {run.job: (node_of(run), run.fence) for run in swarm.runs() if run.job in left}
        assert left
        assert again.keys() == left.keys()
        assert {node for node, _ in again.values()} <= {node for part in living for node in part.nodes}
        assert all(fence > left[job] for job, (_, fence) in again.items())


def test_a_part_that_is_started_again_has_the_same_nodes_in_another_life(play: Callable[..., Any]) -> None:
    with play(4) as swarm:
        (part,), before = swarm.swarm.parts, swarm.nodes()
        part.kill()
        part.start()
        wait_until(lambda: swarm.nodes().keys() == before.keys() and not {*swarm.nodes().values()} & {*before.values()})


def test_a_silent_node_counts_as_dead_and_the_others_of_its_process_live(play: Callable[..., Any]) -> None:
    with play(3) as swarm:
        silent, *others = swarm.swarm.nodes
        life = swarm.nodes()[silent]
        swarm.swarm.parts[0].say("silence")
        wait_until(lambda: silent not in swarm.nodes())
        assert {*others} <= {*swarm.nodes()}
        swarm.swarm.parts[0].say("speak")
        wait_until(lambda: swarm.nodes().get(silent) == life)


def test_a_part_that_drains_ends_its_jobs_and_its_nodes_leave(play: Callable[..., Any]) -> None:
    with play(3, node_ttl=600) as swarm:
        (part,) = swarm.swarm.parts
        swarm.submit([f"s/{place}" for place in range(6)], 1.0)
        wait_until(lambda: swarm.runs(ended=False))
        begun = {run.job for run in swarm.runs(ended=False)}
        part.drain()
        wait_until(lambda: part.process.poll() == 0)
        assert not swarm.nodes()
        assert begun <= {run.job for run in swarm.runs()}
        for name in (f"{place:03}" for place in range(6)):  # those that nobody began
            swarm.shop.coordinator.cancel(name)
