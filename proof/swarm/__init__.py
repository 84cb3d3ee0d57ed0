"""A swarm: many nodes in few processes, made of the library's own parts, without Celery's workers.

Each node has what a node has: a supervisor with its loop, its waiter for wake-ups, and a file in which runners write
their state; slots in which runners claim, run and finish jobs. What is a process elsewhere is a thread here.
"""

SLOTS = 2  # of each node
TASK = "proof.shop.work"
"""The one task of its nodes: others kill their process, or have sub-tasks, which run on a Celery worker."""


def queue_of(main: str) -> str:
    """The queue that a swarm alone serves, beside the app's `main` one: two hundred slots would leave the faults of
    the other nodes nothing to hit. Its jobs meet theirs in lanes and quotas.
    """
    return f"{main}-swarm"


def nodes_of(name: str, count: int) -> list[str]:
    """The nodes of the swarm's process of that name."""
    return [f"{name}-{number}@test" for number in range(count)]


def slots_of(node: str) -> list[str]:
    """Its slots, as the witness names them in place of a process id."""
    return [f"{node}.{number}" for number in range(SLOTS)]
