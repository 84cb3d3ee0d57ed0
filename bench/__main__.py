"""`make bench`: all of them, or those named: see bench/README.md."""

import platform
import subprocess
import sys

import celery
import redis

NAMES = (
    "keyed", "locks", "contended", "size", "many", "fairness", "placement", "idle", "routing", "resume", "harvest",
    "replicas", "nodelist",
)  # fmt: skip


def main() -> None:
    wanted = sys.argv[1:] or NAMES
    if unknown := set(wanted) - set(NAMES):
        raise SystemExit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    print(f"Python {platform.python_version()}, Celery {celery.__version__}, redis-py {redis.__version__}")
    for name in wanted:
        print(f"\n== {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"bench.{name}"], check=True)


main()
