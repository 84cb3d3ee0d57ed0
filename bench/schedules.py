"""Simulated peers: many short jobs and few long ones, where each job is assigned to a node beforehand."""

import heapq
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Slots(NamedTuple):
    """The slots of a node: their number, and their speed, where 1 is full speed."""

    number: int
    speed: float = 1.0


def heavy_tail(seed: int, jobs: int, least: int = 5, most: int = 45) -> list[int]:
    """Sizes with a Pareto tail, cut at `most`."""
    drawn = random.Random(seed)
    return [min(most, int(least * drawn.paretovariate(1.2))) for _ in range(jobs)]


def in_turns(nodes: Sequence[Slots]) -> Callable[[int], int]:
    return lambda number: number % len(nodes)


def at_random(nodes: Sequence[Slots], seed: int) -> Callable[[int], int]:
    drawn = random.Random(seed)
    return lambda number: drawn.randrange(len(nodes))


def end_of(sizes: Sequence[float], nodes: Sequence[Slots], choose: Callable[[int], int]) -> float:
    """The end of the last job, if each job waits in the queue of its chosen node."""
    free = [[0.0] * node.number for node in nodes]
    for number, size in enumerate(sizes):
        chosen = choose(number)
        heapq.heapreplace(free[chosen], free[chosen][0] + size / nodes[chosen].speed)
    return max(max(ends) for ends in free)


def best(sizes: Sequence[float], nodes: Sequence[Slots]) -> float:
    """The best possible time: no order and no choice of nodes ends sooner."""
    return max(sum(sizes) / sum(node.number * node.speed for node in nodes), max(sizes))
