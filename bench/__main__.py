"""`make bench`: all of them, or those named: see bench/README.md."""

import importlib
import platform
import sys

import celery
import redis

NAMES = ("keyed", "locks", "contended", "size", "many", "fairness", "harvest")


def main() -> None:
    wanted = sys.argv[1:] or NAMES
    if unknown := set(wanted) - set(NAMES):
        raise SystemExit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    print(f"Python {platform.python_version()}, Celery {celery.__version__}, redis-py {redis.__version__}")
    for name in wanted:
        print(f"\n== {name}", flush=True)
        importlib.import_module(f"bench.{name}").main()


main()
