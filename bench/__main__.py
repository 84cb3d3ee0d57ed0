"""`make bench` runs all benchmarks but `peers`, or the named ones; see bench/README.md.

An argument that begins with `-` goes to the benchmark before it. `peers` installs its peers, so it is for a name only.
"""

import platform
import subprocess
import sys

import celery
import redis

NAMES = (
    "keyed", "submits", "collecting", "waiting", "outbox", "awaited", "latency", "stages", "redis_time", "locks",
    "grabs", "contended", "size", "many", "fairness", "flow", "tenants", "floods", "placement", "idle", "idle_cpu",
    "routing", "speeds", "resume", "harvest", "flapping", "neighbours", "replicas", "nodelist", "members", "level",
    "moves", "entries", "events", "pipeline", "history", "pages", "imports", "capacity", "async_bodies",
)  # fmt: skip

ASIDE = ("peers",)


def main() -> None:
    wanted = commands(sys.argv[1:])
    print(f"Python {platform.python_version()}, Celery {celery.__version__}, redis-py {redis.__version__}")
    for name, *arguments in wanted:
        print(f"\n== {name}", flush=True)
        done = subprocess.run([sys.executable, "-m", f"bench.{name}", *arguments])
        if done.returncode:
            raise SystemExit(f"{name} ended with {done.returncode}")


def commands(given: list[str]) -> list[list[str]]:
    """Each benchmark with its own arguments."""
    found: list[list[str]] = []
    for one in given or NAMES:
        if not one.startswith("-"):
            found.append([one])
        elif found:
            found[-1].append(one)
        else:
            raise SystemExit(f"{one}: name the benchmark before its arguments")
    if unknown := {name for name, *_ in found} - {*NAMES, *ASIDE}:
        names = ", ".join((*NAMES, *ASIDE))
        raise SystemExit(f"unknown benchmark {', '.join(sorted(unknown))}: choose from {names}")
    return found


if __name__ == "__main__":
    main()
