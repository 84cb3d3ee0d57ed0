"""The tutorial, block for block, as its reader types it: real Redis, real workers, a real kill."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import _state
from kombu import pools

from coordinator import Coordinator
from coordinator.local.redis import find_server, free_port
from tests.harness.command import environment
from tests.harness.fleet import Worker
from tests.harness.snippets import ROOT, Snippet, assert_shown, snippets
from tests.harness.waiting import wait_until
from tests.harness.warm import Process, python, start

PROGRAMS = {"coordinator": "coordinator", "celery": "celery"}


class Reader:
    """One who does as the page says, in a folder of her own; `session`: her Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.session: dict[str, Any] = {}
        self.environ = environment()
        self.redis: subprocess.Popen[bytes] | None = None
        self.workers: list[Worker] = []
        self.client = Coordinator(url=f"redis://127.0.0.1:{self.port}/1", timeout=10)

    def do(self, block: Snippet) -> None:
        if block.language == "python" and block.title:
            (self.folder / block.title).write_text(block.text)
        elif block.language == "python":
            block.run(self.session)
        else:
            for command, expected in block.commands():
                said = self.type(command)
                assert not expected or said is not None
                assert_shown(said or "", expected or ["…"], f"{block}: {command}")

    def type(self, command: str) -> str | None:
        """What it prints; None of one that goes on."""
        words = shlex.split(command)
        if words[0] == "redis-server":
            return self._serve(words[1:])
        if words[0] == "celery" and "worker" in words:
            return self._work(words)
        if words[0] == "export":
            self.environ.update([words[1].split("=")])
            return ""
        if module := PROGRAMS.get(words[0]):
            done = python(["-m", module, *words[1:]], self.folder, self.environ)
        else:
            done = subprocess.run(["bash", "-c", command], cwd=self.folder, capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def _serve(self, options: list[str]) -> None:
        with (self.folder / "redis.log").open("wb") as out:
            argv = [find_server(), *options, "--bind", "127.0.0.1"]
            self.redis = subprocess.Popen(argv, cwd=self.folder, stdout=out, stderr=out)
        wait_until(lambda: "Ready to accept" in (self.folder / "redis.log").read_text())

    def _work(self, words: list[str]) -> None:
        log = self.folder / f"worker-{len(self.workers)}.log"
        with log.open("wb") as out:
            argv = ["-m", "celery", *words[1:]]
            process: Process = start(argv, self.folder, self.environ, stdout=out, stderr=out, session=True)
        self.workers.append(Worker("", process, log))
        wait_until(lambda: len(self.client.nodes()) == len(self.workers), 60, log.read_text)

    def end(self) -> None:
        for worker in self.workers:
            worker.end()
        self.client.store.close()
        if "coordinator" in self.session:
            self.session["coordinator"].store.close()
            self.session["coordinator"].app.close()
        pools.reset()
        if self.redis:
            self.redis.kill()
            self.redis.wait()


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in set(os.environ) - set(environment()):
        monkeypatch.delenv(name)
    monkeypatch.setattr(_state, "_on_app_finalizers", set(_state._on_app_finalizers))
    reads = Reader(tmp_path)
    yield reads
    reads.end()
    sys.modules.pop("shop", None)


def test_the_tutorial_does_as_it_says(reader: Reader) -> None:
    blocks = snippets(ROOT / "docs" / "tutorial.md")
    assert len(blocks) > 10
    for block in blocks:
        if not block.not_run:
            reader.do(block.on(reader.port))
