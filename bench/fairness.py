"""A flood of 100,000 jobs of one group: how long does a light group wait, compared with when it is alone?

One runner in this process runs the light group's twenty jobs, first alone, then behind the flood. All jobs are equal.
"""

import os
import statistics
from typing import Any

from bench import amount
from bench.servers import redis_server
from bench.size import register

FLOOD, LIGHT, PORTION, ROUNDS = amount((100_000, 20, 10_000, 5), (4, 2, 2, 1))


def main() -> None:
    with redis_server() as url:
        os.environ["BENCH_REDIS"] = url
        from bench import app as bench  # the module reads the address of this run's Redis

        register(bench)
        waits(bench)
        alone = [waits(bench) for _ in range(ROUNDS)]
        for start in range(0, FLOOD, PORTION):
            jobs = ((f"flood/{number}", bench.keep.s("")) for number in range(start, start + PORTION))
            bench.coordinator.submit_many(jobs)
        beside = [waits(bench) for _ in range(ROUNDS)]
        one, other = statistics.median(alone), statistics.median(beside)
        print(f"the light group alone           {one * 1000:8.2f} ms")
        print(f"behind {FLOOD:,} of another   {other * 1000:8.2f} ms   x {other / one:.2f}")


def waits(bench: Any) -> float:
    """Seconds from the start of the runner to the end of the light group's last job."""
    coordinator = bench.coordinator
    jobs = coordinator.submit_many((f"light/{number}", bench.keep.s("")) for number in range(LIGHT))
    began = coordinator.store._client.time()
    bench.runner("bench", slice=0.2).run("bell")
    ended = [coordinator.job(job.id).ended for job in jobs]
    return float(max(end.timestamp() for end in ended) - (began[0] + began[1] / 1e6))


if __name__ == "__main__":
    main()
