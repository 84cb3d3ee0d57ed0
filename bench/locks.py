"""What does a lock cost, beside redis-py's own and two bare round trips? One client, no competitor."""

import statistics
import time
from collections.abc import Callable

import redis

from bench import amount
from bench.servers import redis_server
from coordinator import Coordinator

TIMES, ROUNDS = amount((3_000, 5), (2, 1))


def in_turns(peers: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Microseconds of an operation of each peer, round by round."""
    figures: dict[str, list[float]] = {name: [] for name in peers}
    for act in peers.values():
        act()
    for _ in range(rounds):
        for name, act in peers.items():
            began = time.perf_counter()
            for _ in range(TIMES):
                act()
            figures[name].append((time.perf_counter() - began) / TIMES * 1e6)
    return figures


def main(rounds: int = ROUNDS) -> None:
    with redis_server() as url:
        client = redis.Redis.from_url(f"{url}/0")
        coordinator = Coordinator(url=f"{url}/0")
        peers = {
            "coordinator.lock": ours(coordinator),
            "redis-py Lock": theirs(client),
            "two round trips": bare(client),
        }
        figures = in_turns(peers, rounds)
        for name, found in figures.items():
            ratios = [one / other for one, other in zip(found, figures["two round trips"], strict=True)]
            print(
                f"{name:18} {statistics.median(found):7.0f} us   x {statistics.median(ratios):.2f} of two round trips"
            )


def ours(coordinator: Coordinator) -> Callable[[], None]:
    def act() -> None:
        with coordinator.lock("ledger"):
            pass

    return act


def theirs(client: redis.Redis) -> Callable[[], None]:
    def act() -> None:
        with client.lock("theirs", timeout=30):
            pass

    return act


def bare(client: redis.Redis) -> Callable[[], None]:
    def act() -> None:
        client.set("bare", "token", nx=True, px=30_000)
        client.delete("bare")

    return act


if __name__ == "__main__":
    main()
