"""One of four nodes of four slots runs at a fifth of the others' speed, at 60 % load with a heavy tail of run times.

How long do jobs take from their submit to their end, beside two oracles that know the nodes' speeds and not the jobs'
lengths? `greedy` gives each job to a free slot of the fastest node. `patient` lets jobs wait rather than give them to
the slow node, as long as waiting is expected to be shorter. `blind` knows no speeds: the least busy node comes first.

The coordinator's figures come from its real steps on a real Redis, on a clock of the benchmark's own. A wake-up takes
no time there, and neither does a step.
"""

import heapq
import random
import statistics
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from bench import amount
from bench.schedules import Slots, heavy_tail
from bench.servers import redis_server
from coordinator.core.fleet.nodes import Nodes
from coordinator.core.fleet.run_times import RunTimes, united
from coordinator.core.jobs.options import JobDefaults, TaskDefault
from coordinator.core.jobs.request import RequestMaker
from coordinator.core.lanes.client import LaneClient
from coordinator.core.settings import Settings
from proof.model.clock import Clocked

NODES = [Slots(4), Slots(4), Slots(4), Slots(4, 0.2)]
JOBS, LOAD, UNIT, BEAT = amount(4_000, 10), 0.6, 100, 500  # UNIT, BEAT: ms
TTL = 10**9

Arrivals = list[tuple[int, int]]
Choose = Callable[[list[int], int], int | None]


def arrivals(seed: int) -> Arrivals:
    """The instant and the length of each job, in ms."""
    drawn, sizes = random.Random(seed), [UNIT * size for size in heavy_tail(seed, JOBS)]
    rate = LOAD * sum(node.number * node.speed for node in NODES) / statistics.fmean(sizes)
    now, found = 0.0, []
    for size in sizes:
        now += drawn.expovariate(rate)
        found.append((int(now), size))
    return found


def simulated(jobs: Arrivals, choose: Choose) -> list[int]:
    """ms from submit to end of each job, where a node is chosen for the first in line whenever something changes."""
    events = [(at, 0, number) for number, (at, _) in enumerate(jobs)]
    heapq.heapify(events)
    busy, line, took = [0] * len(NODES), deque[int](), []
    while events:
        now, ended, number = heapq.heappop(events)
        if ended:
            busy[ended - 1] -= 1
            took.append(now - jobs[number][0])
        else:
            line.append(number)
        while line and (chosen := choose(busy, len(line))) is not None:
            busy[chosen] += 1
            job = line.popleft()
            heapq.heappush(events, (now + int(jobs[job][1] / NODES[chosen].speed), chosen + 1, job))
    return took


def by(key: Callable[[int, list[int]], Any], least_line: Sequence[int] = (0, 0, 0, 0)) -> Choose:
    def choose(busy: list[int], waiting: int) -> int | None:
        free = [i for i, node in enumerate(NODES) if busy[i] < node.number and waiting > least_line[i]]
        return min(free, key=lambda i: key(i, busy)) if free else None

    return choose


class Fleet:
    """The nodes of the installation, played by hand on the store's clock."""

    def __init__(self, url: str) -> None:
        self.store = Clocked(url, node_ttl=TTL / 1000, timeout=60)
        self.lanes, self.nodes, self.now = LaneClient(self.store), Nodes(self.store), 0
        target = JobDefaults("bench", lambda step: TaskDefault("celery", result=False))
        self.requests = RequestMaker(Settings.load({}, {}, {}), target)
        self.times = [RunTimes(lambda: self.now / 1000) for _ in NODES]
        self.names = [f"node{i}" for i in range(len(NODES))]
        self.events: list[tuple[int, int, Any]] = []
        self.started = dict[str, int]()
        self.count = 0
        for name, node in zip(self.names, NODES, strict=True):
            about: dict[str, str | int | float] = {"app": "bench", "capacity": node.number, "ordinary": 0, "load": 0}
            self.nodes.register(name, "one", about, ["app bench", "queue celery"], ["toil"])

    def answer(self) -> None:
        """A wake-up arrives at once."""
        for node, name in enumerate(self.names):
            while wake := self.store._client.lpop(self.store.key("wakes", "one", name)):
                self.count += 1
                runner, token = f"r{self.count}", f"{self.count:024x}{0:08x}"
                given = self.store.step("runner_take", name, "one", runner, wake, token, TTL)
                self.begin(node, runner, token, given)

    def begin(self, node: int, runner: str, token: str, given: Any) -> None:
        if given:
            number = int(given[0])
            length = int(self.jobs[number][1] / NODES[node].speed)
            heapq.heappush(self.events, (self.now + length, 1, (node, runner, token, number, length)))

    def run(self, jobs: Arrivals) -> list[int]:
        self.jobs, took = jobs, []
        self.events += [(at, 0, number) for number, (at, _) in enumerate(jobs)]
        heapq.heapify(self.events)
        beat, left = 0, len(jobs)
        while left:
            while self.events[0][0] > beat:
                self.reach(beat)
                self.beat()
                beat += BEAT
            now, ended, what = heapq.heappop(self.events)
            self.reach(now)
            if not ended:
                request = self.requests.make(f"key{what}", {"task": "toil"}, {"job_id": str(what)})
                self.lanes.submit(request)
                self.answer()
                continue
            node, runner, token, number, length = what
            self.times[node].note("toil", length / 1000)
            took.append(now - jobs[number][0])
            left -= 1
            following = f"{token[:24]}{int(token[24:], 16) + 1:08x}"
            given = self.store.step(
                "job_finish", str(number), token, "succeeded", "1", 0, "", "", "", "", self.names[node], runner,
                following, TTL,
            )[2]  # fmt: skip
            self.begin(node, runner, following, given)
            self.answer()
        return took

    def reach(self, now: int) -> None:
        self.store.jump(now - self.now)
        self.now = now

    def beat(self) -> None:
        for name, times in zip(self.names, self.times, strict=True):
            self.nodes.beat(name, "one", {}, united([times.sums()]))
        self.store.step("sweep", 0, TTL, "")
        self.answer()


def figures(took: list[int]) -> tuple[float, float]:
    """The mean and the 99th percentile, in ms."""
    return statistics.fmean(took), sorted(took)[len(took) * 99 // 100]


def main() -> None:
    jobs = arrivals(1)
    fast = sum(node.number for node in NODES if node.speed == 1)
    patience = [0 if node.speed == 1 else int((1 / node.speed - 1) * fast) for node in NODES]
    ways = {
        "greedy": by(lambda i, busy: (-NODES[i].speed, busy[i])),
        "patient": by(lambda i, busy: (-NODES[i].speed, busy[i]), patience),
        "blind": by(lambda i, busy: busy[i] / NODES[i].number),
    }
    found = {name: figures(simulated(jobs, choose)) for name, choose in ways.items()}
    with redis_server() as url:
        ours = figures(Fleet(f"{url}/0").run(jobs))
    print(f"coordinator: {JOBS} jobs, from submit to end {ours[0] / 1000:.2f} s on average, p99 {ours[1] / 1000:.2f} s")
    for name, (mean, late) in found.items():
        print(f"  over {name}: {ours[0] / mean:.2f} on average, p99 {ours[1] / late:.2f}")


if __name__ == "__main__":
    main()
