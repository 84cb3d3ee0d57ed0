"""One turn of one peer: a fresh worker and a fresh client for one window.

The client submits and the worker works all the time. The client pauses while more than 2,000 jobs have no effect yet,
so it takes no time from a worker that it is ahead of. Two seconds after the first effect the window opens. The
jobs/s are the effects in the window over its length: what is submitted and done, as it would go on for hours.

All bodies, keys and numbers are the same. A worker has two processes, or there are two of one. A peer submits in bulk
where it has a call for that, else one by one. No results are kept, and each acknowledges as it does by default. A peer
on asyncio runs the same body in a coroutine. Settings are those that its documentation recommends for short tasks.

Redis keeps its append-only file (everysec), as it should in use; PostgreSQL commits to disk as often. Each turn begins
with an empty Redis, or with a PostgreSQL of its own. After its first turn a worker goes on until nothing moves any
more, and all that was submitted is compared with what took effect.
"""

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import psutil
import redis

from bench.peers.environments import KEPT, ROOT
from bench.peers.field import Peer
from bench.peers.postgres import postgres_server

BACKLOG = 2_000
WARM_UP = 2.0
PATIENCE = 60.0  # seconds for a worker's first effect
STILL = 2.0  # seconds without an effect, after which a worker has nothing left
BODIES = {"file": "a byte to a file", "redis": "to Redis and back"}


class Failed(Exception):
    """Raised when a peer does nothing here; the text says what it said last."""


class Window(NamedTuple):
    """Jobs a second; in a first turn also how many were submitted, and how many of them took effect."""

    rate: float
    submitted: int
    effects: int | None


class Stage(NamedTuple):
    """The Redis of all turns, and the file into which bodies write."""

    url: str
    marks: Path

    def clear(self) -> None:
        os.truncate(self.marks, 0)
        with redis.Redis.from_url(self.url) as client:
            client.flushall()

    def done(self, body: str) -> int:
        if body == "file":
            return self.marks.stat().st_size
        with redis.Redis.from_url(f"{self.url}/2") as client:
            return int(client.get("done") or 0)


def turn(stage: Stage, peer: Peer, python: Path, body: str, keys: int, seconds: float, first: bool = False) -> Window:
    stage.clear()
    log = KEPT / "logs" / f"{peer.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        output = stack.enter_context(log.open("w"))
        environ = os.environ | {"PEERS_REDIS": stage.url, "PEERS_MARKS": str(stage.marks), "PEERS_BODY": body}
        environ |= {"PYTHONPATH": str(ROOT)}
        if peer.postgres:
            environ["PEERS_POSTGRES"] = stack.enter_context(postgres_server())
        start = Starter([str(python), "-m", "bench.peers.adapter", peer.name], environ, output)
        if peer.postgres and start("prepare").wait():
            raise Failed(last_line(log))
        for _ in range(peer.workers):
            stack.enter_context(ended(start("worker")))
        client = stack.enter_context(ended(start("client")))
        try:
            return window(client, lambda: stage.done(body), keys, seconds, first)
        except (Failed, BrokenPipeError) as failed:
            raise Failed(f"{failed}: {last_line(log)}") from None


class Starter(NamedTuple):
    argv: list[str]
    environ: dict[str, str]
    output: IO[str]

    def __call__(self, role: str) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE if role == "client" else subprocess.DEVNULL
        out = pipe if role == "client" else self.output
        return subprocess.Popen(
            [*self.argv, role], env=self.environ, cwd=ROOT, text=True, stdin=pipe, stdout=out, stderr=self.output
        )


def window(client: "subprocess.Popen[str]", done: Callable[[], int], keys: int, seconds: float, first: bool) -> Window:
    assert client.stdin
    answer(client)
    client.stdin.write(json.dumps({"keys": keys, "backlog": BACKLOG}) + "\n")
    client.stdin.flush()
    until(lambda: done() > 0 or client.poll() is not None)
    time.sleep(WARM_UP)
    before, began = done(), time.perf_counter()
    time.sleep(seconds)
    after, ended = done(), time.perf_counter()
    client.stdin.close()
    submitted = answer(client)["submitted"]
    if after == before:
        raise Failed("no effect in the window")
    return Window((after - before) / (ended - began), submitted, settled(done, submitted) if first else None)


def answer(client: "subprocess.Popen[str]") -> Any:
    """The next line that the client says."""
    assert client.stdout
    if not select.select([client.stdout], [], [], PATIENCE)[0] or not (line := client.stdout.readline()):
        raise Failed("the client failed")
    try:
        return json.loads(line)
    except ValueError:
        raise Failed(f"the client said {line!r}") from None


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"no effect in {PATIENCE:.0f} s")
        time.sleep(0.01)


def settled(done: Callable[[], int], submitted: int) -> int:
    """How many took effect once all have, or once nothing moves any more."""
    last, since = done(), time.monotonic()
    while last < submitted and time.monotonic() < since + STILL:
        time.sleep(0.05)
        if (now := done()) > last:
            last, since = now, time.monotonic()
    return last


@contextmanager
def ended(process: "subprocess.Popen[str]") -> Iterator["subprocess.Popen[str]"]:
    """End it in the end, with all processes that it started."""
    try:
        yield process
    finally:
        everyone: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            everyone = [first := psutil.Process(process.pid), *first.children(recursive=True)]
        process.terminate()
        _, alive = psutil.wait_procs(everyone, timeout=5)
        for one in alive:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()


def last_line(log: Path) -> str:
    said = log.read_text(errors="replace").strip().splitlines()
    return said[-1][:200] if said else "it said nothing"
