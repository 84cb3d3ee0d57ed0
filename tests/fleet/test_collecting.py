"""Collectors on real nodes: each call is in exactly one job, whoever is killed, and whatever Redis lives through."""

import os
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from coordinator import Coordinator, Job, StoreUnavailable
from coordinator.core.jobs.record import TERMINAL
from tests.fleet.test_restore import KEEPS, fleet_on
from tests.harness.fleet import Fleet
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import start

QUICK = {"COORDINATOR_SWEEP": "0.05", "COORDINATOR_HEARTBEAT": "0.2", "COORDINATOR_NODE_TTL": "1.5",
         "COORDINATOR_LOCK_TTL": "1.5", "COORDINATOR_MAX_LOSSES": "9"}  # fmt: skip
KEYS, CALLS = 3, 120

CALLER = f"""
import sys, time
from coordinator import Coordinator, StoreUnavailable
url, prefix, name, first = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
client = Coordinator(url=url, prefix=prefix, timeout=2)
for number in range(first, {CALLS}):
    signature = {{"task": "tests.harness.apps.shop.gather", "args": [f"{{name}}-{{number}}"]}}
    while True:
        try:
            client.collect(f"k{{number % {KEYS}}}", signature, how="list", idle=0.05, max_wait=0.2, most=15,
                           if_unknown="wait", job_id=f"{{name}}-{{number}}")
            break
        except StoreUnavailable:
            time.sleep(0.05)
    print(number, flush=True)
"""


class Caller:
    """A process that makes its calls one after the other, and says which were acknowledged."""

    def __init__(self, stack: ExitStack, url: str, prefix: str, name: str, first: int = 0) -> None:
        argv = ["-c", CALLER, url, prefix, name, str(first)]
        self.process: Any = stack.enter_context(start(argv, stdout=PIPE))

    def told(self, number: int) -> int:
        """The number of the last call that was acknowledged, once that is at least `number`."""
        last = -1
        while last < number and (line := self.process.stdout.readline()):
            last = int(line)
        return last

    def kill(self) -> None:
        """Perhaps with a call under way."""
        os.kill(self.process.pid, signal.SIGKILL)


def jobs_of(coordinator: Coordinator, names: list[str]) -> dict[str, Job]:
    """By id, the jobs that collected these calls."""
    return {job.id: job for job in map(coordinator.job, names)}


def check(client: Coordinator, names: list[str]) -> None:
    """Each call is in exactly one job, and in the order of its caller."""
    jobs = jobs_of(client, names)
    assert {job.state for job in jobs.values()} == {"succeeded"}
    got = {job.id: [str(call.args[0]) for call in job.args[0]] for job in jobs.values()}
    assert Counter(name for calls in got.values() for name in calls) == Counter(names)
    assert all(job.result == got[job.id] for job in jobs.values())
    assert all(name in got[client.job(name).id] for name in names)
    assert len(jobs) < len(names) / 2, "they were collected"
    in_order = sorted(jobs.values(), key=lambda job: job.fence or 0)
    for key, caller in {(job.key, name[0]) for job in in_order for name in got[job.id]}:
        mine = [name for job in in_order if job.key == key for name in got[job.id] if name[0] == caller]
        numbers = [int(name[2:]) for name in mine]
        assert numbers == sorted(numbers), "in the order of the calls"


def test_each_call_is_in_exactly_one_job_whatever_is_killed(
    redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(RedisServer(tmp_path / "store", *KEEPS))
        fleet = stack.enter_context(fleet_on(store, redis_server, prefix, tmp_path / "fleet"))
        fleet.environ |= QUICK
        fleet.worker("two", 2)
        first, second = (Caller(stack, store.url(0), prefix, name) for name in "ab")
        done = first.told(30)
        first.kill()
        again = Caller(stack, store.url(0), prefix, "a", done + 1)
        os.kill(fleet.workers[1].pid, signal.SIGKILL)
        again.told(done + 20)
        store.kill()
        store.start()
        fleet.worker("three", 2)
        assert again.told(CALLS - 1) == second.told(CALLS - 1) == CALLS - 1
        names = [f"{name}-{number}" for name in "ab" for number in range(CALLS)]
        with Coordinator(url=store.url(0), prefix=prefix) as client:
            wait_until(lambda: all(job.state in TERMINAL for job in jobs_of(client, names).values()), 60, fleet.logs)
            check(client, names)


@pytest.fixture
def gathering(fleet: Fleet) -> Fleet:
    fleet.environ |= QUICK
    fleet.worker("one", 1)
    return fleet


def test_a_job_that_is_lost_gets_the_same_calls_again_and_what_came_later_is_in_the_next(gathering: Fleet) -> None:
    fleet, gather = gathering, gathering.shop.gather
    first = fleet.coordinator.collect("k", gather.s("1", hold=True), how="list", idle=0.2)
    fleet.coordinator.collect("k", gather.s("2"), how="list", idle=0.2)
    fleet.begun("1 2")
    later = fleet.coordinator.collect("k", gather.s("3"), how="list", idle=0.2)
    assert (later.outcome, fleet.coordinator.job(later.id).state) == ("queued", "collecting")
    os.kill(fleet.workers[0].pid, signal.SIGKILL)
    fleet.workers[0].end()
    fleet.worker("two", 1)
    wait_until(lambda: len(fleet.stamps("1 2", "begin")) == 2, what=fleet.logs)
    with fleet.server.client(3) as log:
        log.rpush(f"{fleet.prefix}.go.1", "go")
    assert (first.get(timeout=60), later.get(timeout=60)) == (["1", "2"], ["3"])
    assert [stamp.name for stamp in fleet.stamps(what="end")] == ["1 2", "3"]


def test_a_call_whose_reply_was_lost_is_in_its_job_once(gathering: Fleet, redis_server: RedisServer) -> None:
    fleet, gather = gathering, gathering.shop.gather
    signature = {"task": gather.name, "args": ["mine"]}
    with Proxy(redis_server.port) as proxy:
        client = Coordinator(url=proxy.url(0), prefix=fleet.prefix, timeout=5)
        first = fleet.coordinator.collect("k", gather.s("first"), how="list", idle=0.5)
        client.store._client.ping()
        proxy.lose_reply(b"job_submit")
        with pytest.raises(StoreUnavailable) as unknown:
            client.collect("k", signature, how="list", idle=0.5, job_id="mine")
        assert unknown.value.job_id == "mine"
        made = client.collect("k", signature, how="list", idle=0.5, job_id="mine")
        assert made.outcome == "duplicate"
        assert first.get(timeout=60) == ["first", "mine"] == made.get(timeout=60)
        again = client.collect("k", signature, how="list", idle=0.5, job_id="mine")
        assert (again.outcome, again.get(timeout=60)) == ("duplicate", ["first", "mine"])
        client.close()


def test_a_thousand_calls_of_a_debounce_are_one_run_with_the_newest(gathering: Fleet) -> None:
    fleet, work = gathering, gathering.shop.work
    options = {"collect": {"idle": 0.5, "max_wait": 30}}
    made = fleet.coordinator.submit_many([("k", work.s(f"{number}"), options) for number in range(1000)])
    assert Counter(one.outcome for one in made) == {"queued": 1, "coalesced": 999}
    assert made[500].get(timeout=60) == "999"
    assert [stamp.name for stamp in fleet.stamps(what="begin")] == ["999"]
