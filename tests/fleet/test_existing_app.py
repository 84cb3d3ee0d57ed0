"""examples/existing_app: five lines put an ordinary project's work into lanes, and taken out its tasks still run."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname

import pytest
import yaml

from coordinator import Coordinator
from tests.harness.fleet import ROOT, Worker
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import python, start

PROJECT = ROOT / "examples" / "existing_app"
DIFF = (PROJECT / "coordinate.diff").read_text()
CALLS = """
from shipping.orders import place
for result in [result for number in (1, 2, 3) for result in place(number)]:
    result.get(timeout=60)
"""


def patch(folder: Path, diff: str) -> None:
    """Apply a unified diff; fails where a file is not as the diff says."""
    for part in re.split(r"^--- .*\n", diff, flags=re.MULTILINE)[1:]:
        name, _, hunks = part.partition("\n")
        path = folder / name.removeprefix("+++ b/")
        text = path.read_text()
        for hunk in re.split(r"^@@ .*\n", hunks, flags=re.MULTILINE)[1:]:
            lines = [line or " " for line in hunk.splitlines()]
            before, after = ("".join(f"{line[1:]}\n" for line in lines if line[0] in kinds) for kinds in (" -", " +"))
            assert text.count(before) == 1, f"{name} is not as coordinate.diff says:\n{before}"
            text = text.replace(before, after)
        path.write_text(text)


class Project:
    """A copy of it, with its environment."""

    def __init__(self, folder: Path, server: RedisServer, prefix: str) -> None:
        self.folder = folder
        self.ledger = folder / "ledger.txt"
        self.environ = os.environ | {
            "SHIPPING_BROKER": server.url(5),
            "SHIPPING_RESULTS": server.url(6),
            "SHIPPING_LEDGER": str(self.ledger),
            "COORDINATOR_URL": server.url(0),
            "COORDINATOR_PREFIX": prefix,
        }
        shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))

    @contextmanager
    def worker(self, *options: str) -> Iterator[None]:
        log, container = self.folder / "log", yaml.safe_load((self.folder / "compose.yml").read_text())
        argv = ["-m", *container["services"]["worker"]["command"], *options]
        with log.open("wb") as out:
            process = start(argv, self.folder, self.environ, stdout=out, stderr=out, session=True)
        worker = Worker(f"worker@{gethostname()}", process, log)
        try:
            wait_until(lambda: " ready." in log.read_text(), 60, log.read_text)
            yield
        finally:
            worker.end()

    def run(self, *argv: str) -> None:
        done = python(argv, self.folder, self.environ)
        assert not done.returncode, done.stdout + done.stderr

    def worked(self) -> dict[str, list[str]]:
        """What was done for each order, in its sequence."""
        found: dict[str, list[str]] = {}
        for line in self.ledger.read_text().splitlines():
            order, _, what = line.partition(": ")
            found.setdefault(order, []).append(what)
        self.ledger.unlink()
        return found


@pytest.fixture
def project(tmp_path: Path, redis_server: RedisServer, prefix: str) -> Iterator[Project]:
    yield Project(tmp_path / "project", redis_server, prefix)
    for database in (5, 6):
        with redis_server.client(database) as client:
            client.flushdb()


APART = ["pack begins", "pack ends", "ship begins", "ship ends"]


def test_before_two_work_on_an_order_after_one_at_a_time_in_order_and_taken_out_the_tasks_still_run(
    project: Project, coordinator: Coordinator
) -> None:
    project.run("-m", "pytest", "-q", "-p", "no:cacheprovider")
    with project.worker("-P", "threads"):
        project.run("-c", CALLS)
    before = project.worked()
    assert any(sorted(done) == APART and done != APART for done in before.values()), "two at once on one order"
    patch(project.folder, DIFF)
    project.run("-m", "pytest", "-q", "-p", "no:cacheprovider")
    with project.worker():
        wait_until(coordinator.nodes)
        project.run("-c", CALLS)
    assert list(project.worked().values()) == [APART] * 3
    assert not coordinator.lanes()
    (project.folder / "shipping" / "app.py").write_text((PROJECT / "shipping" / "app.py").read_text())
    with project.worker("-P", "threads"):
        project.run("-c", CALLS)
    assert [sorted(done) for done in project.worked().values()] == [APART] * 3


def test_the_diff_has_five_lines_at_most() -> None:
    assert len(re.findall(r"^\+(?!\+\+ )", DIFF, re.MULTILINE)) <= 5
    assert len(re.findall(r"^-(?!-- )", DIFF, re.MULTILINE)) <= 5
