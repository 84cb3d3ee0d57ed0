"""What does a submit that rings cost with 3, 30 and 300 nodes? Each node is a mere registration with room."""

import statistics
import time

from bench import amount
from bench.servers import redis_server
from coordinator import Coordinator
from coordinator.core.fleet.nodes import Nodes

FLEETS = amount((3, 30, 300), (2, 3))
TIMES, ROUNDS = amount((1_000, 5), (2, 1))


def main(rounds: int = ROUNDS) -> None:
    with redis_server() as url:
        clients = {size: fleet(url, size) for size in FLEETS}
        found: dict[int, list[float]] = {size: [] for size in FLEETS}
        for number in range(rounds):
            for size, client in clients.items():
                found[size].append(a_submit(client, number))
        for size, figures in found.items():
            ratio = statistics.median(one / few for one, few in zip(figures, found[FLEETS[0]], strict=True))
            print(f"{size:4} nodes {statistics.median(figures) * 1e6:7.0f} us a submit   x {ratio:.2f}")


def fleet(url: str, size: int) -> Coordinator:
    client = Coordinator(url=f"{url}/0", prefix=f"p{size}", node_ttl=86400.0)
    nodes = Nodes(client.store)
    for number in range(size):
        about = {"app": "bench", "capacity": 1_000_000, "ordinary": 0, "load": number / size}
        nodes.register(f"node{number}", "one", about, ["app bench", "queue celery"], ["bench.app.keep"])
    return client


def a_submit(client: Coordinator, number: int) -> float:
    """Seconds for a submit, the median of many. Each submit rings one node, and no node answers."""
    signature, figures = {"task": "bench.app.keep", "args": ["x"]}, []
    before = sum(node.rung for node in client.nodes())
    for i in range(TIMES):
        began = time.perf_counter()
        client.submit(f"k{number}-{i}", signature)
        figures.append(time.perf_counter() - began)
    rung = sum(node.rung for node in client.nodes()) - before
    if rung != TIMES:
        raise SystemExit(f"{rung} of {TIMES} submits rang")
    return statistics.median(figures)


if __name__ == "__main__":
    main()
