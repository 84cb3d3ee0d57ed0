"""Where does the time of a job go? us of each stage, as a stacked bar.

A client submits, then one runner works in this same process, alone with its Redis. So each stage can be measured apart:
a function's own time, without that of the stages inside it. Redis tells how long its steps took; the rest of a wait is
the way there and back. Results and events go out by threads beside the runner: their processor time is shown.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import redis

from bench import amount
from bench.servers import redis_server

JOBS, PORTION, WIDTH = *amount((4_000, 500), (4, 2)), 72


class Stage(NamedTuple):
    who: str
    what: str
    us: float


class Watch:
    """The own time of each function that it wraps, in seconds."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)
        self._inside: list[float] = []

    def on(self, owner: Any, name: str, stage: str) -> None:
        call: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **options: Any) -> Any:
            self._inside.append(0.0)
            began = time.perf_counter()
            try:
                return call(*args, **options)
            finally:
                took = time.perf_counter() - began
                self.spent[stage] += took - self._inside.pop()
                if self._inside:
                    self._inside[-1] += took

        setattr(owner, name, timed)


def main() -> None:
    with redis_server("--appendonly", "yes") as url:
        os.environ |= {"BENCH_REDIS": url, "BENCH_RESULTS": "1"}
        from bench import app as bench  # the module reads the address of this run
        from bench.size import register

        register(bench)
        with redis.Redis.from_url(url) as client:
            before = used(client)
            found = [*client_stages(bench, client), *runner_stages(bench, client)]
            busy = (used(client) - before) / JOBS * 1e6
        show(found)
        print(f"Redis' one thread is busy for {busy:.0f} us a job and its body: {1e6 / busy:.0f} jobs/s at most")


def used(client: Any) -> float:
    """Seconds of Redis' processor time."""
    told = client.info("cpu")
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])


def client_stages(bench: Any, client: Any) -> list[Stage]:
    watch, coordinator, job = Watch(), bench.coordinator, bench.count.s()
    watch.on(coordinator, "_request", "check and lay out")
    watch.on(coordinator._core, "submit_many", "wait")
    coordinator.submit_many([("warm", job)])
    client.config_resetstat()
    watch.spent.clear()
    for start in range(0, JOBS, PORTION):
        coordinator.submit_many((f"key/{number}", job) for number in range(start, start + PORTION))
    step = steps(client)
    us = {name: seconds / JOBS * 1e6 for name, seconds in watch.spent.items()}
    return [
        Stage("client", "check and lay out", us["check and lay out"]),
        Stage("client", "send, read, network", us["wait"] - step),
        Stage("Redis", "submit", step),
    ]


def runner_stages(bench: Any, client: Any) -> list[Stage]:
    from coordinator.core.runner import runner as module
    from coordinator.core.runner.attempt import Tracers

    watch, runner = Watch(), bench.runner("bench")
    runner._events._status_file.events = True
    outbox, events = beside(runner._outbox), beside(runner._events)
    watch.on(module, "claim_of", "read the claim")
    watch.on(Tracers, "attempt", "trace (Celery)")
    watch.on(bench.count, "run", "body")
    watch.on(runner.store, "step", "wait")
    for name in ("started", "ended"):
        watch.on(runner._events, name, "note events")
    watch.on(runner, "_work", "rest of the runner")
    client.config_resetstat()
    done = runner.run("bell")
    runner._outbox.flush(10)
    runner._events.flush(10)
    step = steps(client)
    us = {name: seconds / done * 1e6 for name, seconds in watch.spent.items()}
    names = ("read the claim", "trace (Celery)", "body", "note events", "rest of the runner")
    return [
        Stage("Redis", "finish and claim", step),
        Stage("worker", "send, read, network", us["wait"] - step),
        *(Stage("worker", name, us[name]) for name in names),
        Stage("beside", "results (thread)", outbox[0] / done * 1e6),
        Stage("beside", "events (thread)", events[0] / done * 1e6),
    ]


def beside(sender: Any) -> list[float]:
    """The processor seconds of a sending thread, as they add up."""
    spent, send = [0.0], sender.send

    def timed(items: Any) -> None:
        began = time.thread_time()
        send(items)
        spent[0] += time.thread_time() - began

    sender.send = timed
    return spent


def steps(client: Any) -> float:
    """us that Redis' steps took for each job since the last reset."""
    return float(client.info("commandstats")["cmdstat_fcall"]["usec"]) / JOBS


def show(found: list[Stage]) -> None:
    total, before = sum(stage.us for stage in found), 0.0
    for stage in found:
        left, wide = round(before / total * WIDTH), max(1, round(stage.us / total * WIDTH))
        print(f"{stage.who:7} {stage.what:22} {stage.us:6.1f} us  {' ' * left}{'█' * wide}")
        before += stage.us
    for who in dict.fromkeys(stage.who for stage in found):
        print(f"{who:7} {sum(stage.us for stage in found if stage.who == who):6.1f} us")
    print(f"in all  {total:6.1f} us, with results and events")


if __name__ == "__main__":
    main()
