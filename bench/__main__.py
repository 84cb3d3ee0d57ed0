"""`make bench` runs all benchmarks, or those that are named; see bench/README.md."""

import platform
import subprocess
import sys

import celery
import redis

NAMES = (
    "keyed", "submits", "latency", "stages", "locks", "contended", "size", "many", "fairness", "placement", "idle",
    "routing", "speeds", "resume", "harvest", "replicas", "nodelist", "moves",
)  # fmt: skip


def main() -> None:
    wanted = sys.argv[1:] or NAMES
    if unknown := set(wanted) - set(NAMES):
        raise SystemExit(f"unknown benchmark {', '.join(sorted(unknown))}: choose from {', '.join(NAMES)}")
    print(f"Python {platform.python_version()}, Celery {celery.__version__}, redis-py {redis.__version__}")
    for name in wanted:
        print(f"\n== {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"bench.{name}"], check=True)


main()
