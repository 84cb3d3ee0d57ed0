"""What does a job cost Redis, what share have history and counts, and what does a quota add? Instructions of the server
under valgrind's callgrind, which any machine repeats.

One client submits to lanes of their own, then one runner finishes each job with its result and claims the next, with
history and without in turns; then with one quota that has room, and with one of a single unit. Redis writes nothing to
disk. Two runs differ by 0.3 %, where processor time differs by two thirds between hours. Needs valgrind.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench import amount
from bench.size import register
from coordinator.core.store import library
from coordinator.core.store.library import Library
from coordinator.local.redis import find_server
from tests.harness.redis import RedisServer

JOBS, PORTION, ROUNDS = amount((1_000, 100, 3), (2, 2, 1))
OPTIONS = ("--dynamic-hz", "no", "--hz", "1", "--activerehashing", "no", "--enable-debug-command", "yes")
CALLGRIND = '#!/bin/sh\nexec valgrind --tool=callgrind --callgrind-out-file={}/callgrind {} "$@"\n'


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        program = directory / "server"
        program.write_text(CALLGRIND.format(directory, find_server()))
        program.chmod(0o755)
        with RedisServer(directory, *OPTIONS, program=str(program)) as server:
            url = server.url(0).removesuffix("/0")
            os.environ |= {"BENCH_REDIS": url, "BENCH_RESULTS": "1", "COORDINATOR_TIMEOUT": "60"}
            from bench import app as bench  # the module reads the address of this run's Redis

            register(bench)
            bench.counter.execute_command("DEBUG SET-ACTIVE-EXPIRE 0")  # its share goes by time
            one_by_one(bench)  # loads the library, and lets Redis and Lua get their memory
            work(bench)
            rounds = (("submit", one_by_one), ("finish and claim", work), ("submit in bulk", in_bulk))
            store, found = bench.coordinator.store, dict[str, list[float]]()
            for variant in (store.library, without_history()) * ROUNDS:
                store.library = variant
                one_by_one(bench)  # loads it
                work(bench)
                for name, act in rounds:
                    dump(server, directory)
                    act(bench)
                    found.setdefault(name, []).append(dump(server, directory) / JOBS / 1000)
                work(bench)
            with_quotas(bench, server, directory, found)
            for name, figures in found.items():
                whole, bare = min(figures[::2]), min(figures[1::2])  # threads that look now and then only add to them
                share = f"{(whole - bare) / whole:.1%} for history and counts"
                print(f"{name:16} {whole:6.1f} thousand instructions, {share}", flush=True)


def with_quotas(bench: Any, server: RedisServer, directory: Path, without: dict[str, list[float]]) -> None:
    """In ratio to what the same costs with no quota."""
    bench.coordinator.store.library = library.current()
    for name, units in (("that has room", 10**9), ("of one unit", 1)):
        bench.coordinator.quota("pool", concurrency=units)
        found: dict[str, list[float]] = {"submit": [], "finish and claim": []}
        for number in range(ROUNDS + 1):
            for part in found:
                dump(server, directory)
                if part == "submit":
                    one_by_one(bench, uses="pool")
                else:
                    work(bench)
                figure = dump(server, directory) / JOBS / 1000
                if number:  # the first one lets Redis and Lua get their memory
                    found[part].append(figure)
        parts = (f"{part} x {min(figures) / min(without[part][::2]):.3f}" for part, figures in found.items())
        print(f"with one quota {name}: {', '.join(parts)}", flush=True)


def without_history() -> Library:
    """The library without the course of jobs, the lists of ended jobs, and the counts by task."""
    nothing = "".join(f"function history.{name}() end\n" for name in ("count", "ended", "note"))

    def text(file: str) -> str:
        whole = library.text_of(file)
        return whole.replace("return history\n", f"{nothing}return history\n") if file == "history" else whole

    return library.assemble(text)


def dump(server: RedisServer, directory: Path) -> int:
    """The instructions since the last dump."""
    assert server.process
    subprocess.run(["callgrind_control", "--dump", str(server.process.pid)], check=True, capture_output=True)
    *_, last = sorted(directory.glob("callgrind.*"), key=lambda path: int(path.suffix[1:]))
    found = re.search(r"^(?:totals|summary): (\d+)", last.read_text(), re.M)
    assert found
    return int(found[1])


def one_by_one(bench: Any, **options: Any) -> None:
    for number in range(JOBS):
        bench.coordinator.submit(f"key/{number}", bench.keep.s("x"), **options)


def in_bulk(bench: Any) -> None:
    for start in range(0, JOBS, PORTION):
        keys = range(start, start + PORTION)
        bench.coordinator.submit_many((f"key/{number}", bench.keep.s("x")) for number in keys)


def work(bench: Any) -> None:
    bench.runner("bench").run("bell")


if __name__ == "__main__":
    main()
