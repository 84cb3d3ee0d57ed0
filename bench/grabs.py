"""What does a grab cost that wins and completes, beside two bare round trips and a lock? One client, no competitor.

And how long after a kill of the winner has a process that waits taken the instance over?
"""

import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import redis

from bench import amount
from bench.locks import ROUNDS, bare, in_turns
from bench.locks import ours as locked
from bench.servers import redis_server
from coordinator import Coordinator

TTL, KILLS = amount((2.0, 10), (1.0, 1))

WINNER = """
import sys, time
from coordinator import Coordinator
print(Coordinator(url=sys.argv[1]).grab("kills", sys.argv[2], "dies", ttl=float(sys.argv[3])).won, flush=True)
time.sleep(600)
"""


def main(rounds: int = ROUNDS) -> None:
    with redis_server() as url:
        client = redis.Redis.from_url(f"{url}/0")
        coordinator = Coordinator(url=f"{url}/0")
        peers = {"grab, complete": ours(coordinator), "lock": locked(coordinator), "two round trips": bare(client)}
        figures = in_turns(peers, rounds)
        for name, found in figures.items():
            bare_ones = figures["two round trips"]
            ratio = statistics.median(one / other for one, other in zip(found, bare_ones, strict=True))
            median = statistics.median(found)
            print(f"{name:15} {median:5.0f} us, {1e6 / median:5.0f}/s, x {ratio:.2f} of two round trips")
        taken = sorted(take_over(coordinator, f"{url}/0", number) for number in range(KILLS))
        middle = statistics.median(taken)
        told = f"median {middle:.2f} s, at most {taken[-1]:.2f} s, {KILLS} kills"
        print(f"taken over after a kill, leases of {TTL:g} s: {told}")


def ours(coordinator: Coordinator) -> Callable[[], None]:
    numbers = itertools.count()

    def act() -> None:
        coordinator.grab("ledger", next(numbers), "one").complete()

    return act


def take_over(coordinator: Coordinator, url: str, number: int) -> float:
    """Seconds from the kill of the winner."""
    argv = [sys.executable, "-c", WINNER, url, str(number), str(TTL)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as winner:
        assert winner.stdout
        assert winner.stdout.readline() == "True\n"
        grab = coordinator.grab("kills", number, "takes over", on_losing="wait")
        time.sleep(number % 5 * TTL / 15)  # so that the kills fall everywhere between two renewals
        winner.kill()
        killed = time.perf_counter()
        grab.wait(30)
    assert grab.won
    grab.complete()
    return time.perf_counter() - killed


if __name__ == "__main__":
    main()
