"""The servers of examples/resilience.py, one, two and three of them, and restarted: each slot once, in time."""

import os
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from subprocess import PIPE
from typing import NamedTuple

import pytest

from coordinator import Coordinator
from tests.harness.command import ROOT
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import Started, start

SLOTS, WORK = 8, 1.5  # as the example has them
NAMES = ("server 1", "server 2", "server 3")


class Done(NamedTuple):
    """A slot as Redis has it: its number from 0, and when its work began and ended, in seconds from the first slot."""

    number: int
    winner: str
    begun: float
    ended: float
    attempt: int


class Servers:
    def __init__(self, url: str, prefix: str) -> None:
        self.environ = os.environ | {"COORDINATOR_URL": url, "COORDINATOR_PREFIX": prefix}
        self.coordinator = Coordinator(url=url, prefix=prefix)
        self.first = 0
        self.stack = ExitStack()
        self.running: dict[str, Started] = {}
        self.said: list[str] = []

    def start(self, *names: str) -> None:
        """They are up before the first slot."""
        for name in names:
            process = start(["examples/resilience.py", name], ROOT, self.environ, stdin=PIPE, stdout=PIPE)
            self.running[name] = self.stack.enter_context(process)
        for name in names:
            stdout = self.running[name].stdout
            assert stdout
            assert stdout.readline() == f"{name} is up\n"
        self.first = self.first or int(time.time()) + 2
        for name in names:
            stdin = self.running[name].stdin
            assert stdin
            stdin.write(f"{self.first}\n")
            stdin.flush()

    def restart(self, name: str) -> None:
        self.running[name].send_signal(signal.SIGTERM)
        self.ended(name)
        self.start(name)

    def ended(self, name: str) -> None:
        said, _ = self.running[name].communicate(timeout=60)
        # One that has shown its list is at its end: a signal may meet Python without its handlers.
        assert self.running[name].returncode == 0 or " sees: " in said
        self.said += said.splitlines()

    def done(self) -> list[Done]:
        """All slots, once the servers have ended. Each server shows the same winners."""
        for name in self.running:
            self.ended(name)
        found = sorted(self.coordinator.grabs("timer"), key=lambda one: one.instance)
        assert [(int(one.instance) - self.first, one.state) for one in found] == [
            (number, "complete") for number in range(SLOTS)
        ]
        winners = [f"{int(one.instance) % 1000}: complete, {one.winner.identifier}" for one in found if one.winner]
        for name in self.running:
            begin = f"{name} sees: slot "
            seen = [line.removeprefix(begin) for line in self.said if line.startswith(begin)]
            assert seen[-SLOTS:] == winners, "one that was restarted after the last slot says it twice"
        return [
            Done(
                int(one.instance) - self.first, one.winner.identifier, one.started.timestamp() - self.first,
                one.ended.timestamp() - self.first, one.attempt,
            )
            for one in found if one.winner and one.started and one.ended
        ]  # fmt: skip


@pytest.fixture
def servers(redis_server: RedisServer, prefix: str) -> Iterator[Servers]:
    found = Servers(redis_server.url(0), prefix)
    with found.stack:
        yield found
        for process in found.running.values():
            process.kill()
    found.coordinator.store.close()


def lag(done: Sequence[Done]) -> float:
    """The median, in seconds: that some slots meet a busy machine counts for nothing. One server alone has 1.75 s."""
    return statistics.median(one.begun - one.number for one in done)


def test_one_server_does_each_slot_and_lags_by_the_surplus_of_the_work(servers: Servers) -> None:
    servers.start("server 1")
    for one in servers.done():
        surplus = one.number * (WORK - 1)
        assert surplus - 0.01 < one.begun - one.number < surplus + 10
        assert one.attempt == 1


def test_two_servers_keep_up_in_turns(servers: Servers) -> None:
    servers.start(*NAMES[:2])
    done = servers.done()
    assert lag(done) < 0.9, done
    shares = Counter(one.winner for one in done)
    assert min(shares[name] for name in NAMES[:2]) >= SLOTS // 2 - 1, "a busy machine may swap them once"


def test_of_three_servers_one_is_always_idle_and_the_losers_name_the_winner_of_each_slot(servers: Servers) -> None:
    servers.start(*NAMES)
    done = servers.done()
    at_work = [sum(other.begun <= one.begun < other.ended for other in done) for one in done]
    assert statistics.median(at_work) <= 2, f"one of three is idle while one begins: {done}"
    for one in done:
        others = {f"{name} lost slot {(servers.first + one.number) % 1000} to {one.winner}" for name in NAMES}
        assert others & set(servers.said) == {line for line in others if not line.startswith(one.winner)}
    assert lag(done) < 0.9, done
    assert sum(" lost slot " in line for line in servers.said) == 2 * SLOTS


def test_a_rolling_restart_of_all_three_skips_no_slot_and_does_none_twice(servers: Servers) -> None:
    servers.start(*NAMES)
    for number, name in enumerate(NAMES):
        wait_until(lambda at=2 * number + 1.2: time.time() > servers.first + at)  # type: ignore[misc]
        servers.restart(name)
    done = servers.done()
    assert [one.attempt for one in done] == [1] * SLOTS
    worked = Counter(line.split(" works on slot ")[1] for line in servers.said if " works on slot " in line)
    assert worked == Counter(f"{(servers.first + number) % 1000}, attempt 1" for number in range(SLOTS))
