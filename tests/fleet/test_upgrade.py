"""Upgrades under load: this tree beside a copy of it whose records have the next format, and the way back."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from coordinator import StoreRefused
from coordinator.core.store.library import text_of
from coordinator.scheduler.entry import Entry
from tests.coordinator.scheduler.beats import without_gap
from tests.harness.failover import Load
from tests.harness.fleet import ROOT, Fleet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import Process, python, start

# Submits a job to each of its lanes until it hears that there is enough, and says which ones Redis acknowledged.
CLIENT = """
import sys, threading
from tests.harness.apps.shop import coordinator, work
enough = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), enough.set())).start()
number = 0
while not enough.wait(0.1):
    for key in "xy":
        name = f"{key}/{number}"
        print(coordinator.submit(f"key/{key}", work.s(name, 0.01), job_id=name).id, flush=True)
    number += 1
"""


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this tree: its library of functions has another text, and its records the next format."""
    root = tmp_path_factory.mktemp("newer")
    shutil.copytree(ROOT / "coordinator", root / "coordinator")
    (root / "tests").symlink_to(ROOT / "tests")
    record = root / "coordinator" / "core" / "store" / "functions" / "rules" / "record.lua"
    record.write_text(text_of("record").replace("record.FORMAT = 1", "record.FORMAT = 2"))
    return root


@pytest.fixture
def fleet(own_redis: RedisServer, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(own_redis, "own", tmp_path, sweep=0.2) as fleet:
        yield fleet


@contextmanager
def beat(fleet: Fleet, root: Path) -> Iterator[Path]:
    """A beat with the code of that tree; its log."""
    log = fleet.directory / f"beat-{root.name}.log"
    argv = ["-m", "celery", "-A", f"{fleet.apps}.shop", "beat", "--pidfile=", "-l", "INFO"]
    argv += ["-S", "coordinator.scheduler.Scheduler", "-s", str(fleet.directory / f"last-{root.name}")]
    with log.open("ab") as out:
        env = os.environ | fleet.environ
        process: Process
        if root == ROOT:
            process = start(argv, ROOT, env, stdout=out, stderr=out)
        else:
            process = subprocess.Popen([sys.executable, *argv], stdout=out, stderr=out, cwd=root, env=env)
    try:
        wait_until(lambda: "beat: Starting" in log.read_text())
        yield log
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def client(fleet: Fleet, root: Path, load: Load) -> Iterator[None]:
    """A client with the code of that tree; the load takes up what it submitted."""
    argv, env = [sys.executable, "-c", CLIENT], os.environ | fleet.environ
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root, env=env) as process:
        yield
        load.acknowledged |= dict.fromkeys(process.communicate()[0].split(), 0.0)
    assert process.returncode == 0


def end(fleet: Fleet, name: str) -> None:
    """As a process manager ends a node."""
    [worker] = [one for one in fleet.workers if one.name == f"{name}@test" and one.process.poll() is None]
    worker.kill(signal.SIGTERM)
    assert worker.process.wait(60) == 0


def ticks(fleet: Fleet) -> list[str]:
    names = fleet.coordinator.store.read("KEYS", fleet.coordinator.store.key("job", "tick@*"))
    return sorted(name.decode() for name in names)


def every_second(fleet: Fleet) -> None:
    """Also those of a moment in which the one beat that can read the records is not there yet."""
    entry = Entry("tick", 1, f"{fleet.apps}.shop.note", args=["tick"], key="tick", misfire="all")
    fleet.coordinator.entries.put(entry)


def test_two_versions_share_the_work_forwards_and_back(fleet: Fleet, newer: Path) -> None:
    every_second(fleet)
    fleet.worker("one")
    with ExitStack() as new, Load(fleet, keys=4, pause=0.1) as load:
        with beat(fleet, ROOT):
            load.goes_on()
            new.enter_context(client(fleet, newer, load))
            fleet.worker("two", root=newer)
            new.enter_context(beat(fleet, newer))
            load.goes_on()
        end(fleet, "one")
        load.goes_on()
        before = len(ticks(fleet))
        wait_until(lambda: len(ticks(fleet)) > before + 1)
        fleet.worker("one")
        new.enter_context(beat(fleet, ROOT))
        load.goes_on()
        end(fleet, "two")
        load.goes_on()
    found = load.account()
    assert found[1:] == ([], 0, 0, [])
    assert {name[0] for name in load.acknowledged} == {*"0123xy"}
    fired = ticks(fleet)
    assert without_gap(fired, 1), fired
    wait_until(lambda: len(fleet.stamps("tick", "noted")) == len(ticks(fleet)))
    with fleet.server.client() as redis:
        assert len(redis.function_list("coordinator_*")) == 2
        assert redis.info("commandstats")["cmdstat_function|load"]["calls"] < 6  # a few at once, at the first step


def test_once_records_have_the_next_format_older_processes_wait_and_say_so(fleet: Fleet, newer: Path) -> None:
    every_second(fleet)
    store = fleet.coordinator.store
    old = fleet.worker("one")
    refusal = "has records of format 2, which celery-coordinator"
    with Load(fleet, keys=4, pause=0.1) as load, beat(fleet, ROOT) as log:
        with client(fleet, newer, load), beat(fleet, newer):
            fleet.coordinator.submit("long", fleet.shop.work.s("long", 3.0), job_id="long")
            fleet.begun("long")
            fleet.worker("two", root=newer)
            load.goes_on()
            store._client.set(store.key("format"), 2)  # as the next version does once all nodes can read it
            late = fleet.worker("three", ready=False)
            for said in (old.log, late.log, log):
                wait_until(lambda said=said: refusal in said.read_text(), what=fleet.logs)
            with pytest.raises(StoreRefused, match=refusal):
                fleet.coordinator.submit("refused", fleet.shop.work.s("refused"), job_id="refused")
            argv = ["-m", "coordinator", "-A", f"{fleet.apps}.shop", "status"]
            done = python(argv, ROOT, os.environ | fleet.environ)
            assert done.returncode
            assert refusal in done.stderr
            assert "Traceback" not in done.stderr
            load.goes_on()  # of the newer client, at the newer node
        store._client.set(store.key("format"), 1)
        wait_until(lambda: "three@test" in fleet.nodes(), what=fleet.logs)
        load.goes_on()
    found = load.account()
    assert (found.lost, found.at_once, found.overtaken) == ([], 0, [])
    assert found.again <= 2  # an older node's bodies that ended meanwhile, if it waited for longer than a lease
    assert fleet.coordinator.wait("long", 60).state == "succeeded"
    assert "Traceback" not in late.log.read_text() + log.read_text()
    fired = ticks(fleet)
    assert without_gap(fired, 1), fired
