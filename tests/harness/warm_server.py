"""Has the libraries loaded, and forks for each program of the tests: `python -m tests.harness.warm_server FD ROOM`.

A message on FD is a program in JSON with four descriptors: its standard three, and an ear. To that the program says
its pid once it stands as it should, and this process says later how it ended. It has no threads. It ends with the test
process; its programs end by themselves. ROOM is there for their command lines, which they write over that of this one.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

LIBRARIES = (
    "alembic", "billiard.sharedctypes", "celery.app", "celery.app.amqp", "celery.app.control", "celery.app.events",
    "celery.app.log", "celery.apps.beat", "celery.apps.worker", "celery.backends.redis", "celery.beat",
    "celery.bin.celery", "celery.canvas", "celery.concurrency.prefork", "celery.result", "celery.worker.components",
    "celery.worker.consumer", "celery.worker.pidbox", "coordinator.ops.cli.main",
    "coordinator.ops.diagnosis.status", "tasks.documents.registry",
    "coordinator.inbox.amqp_queue", "coordinator.inbox.inbox",
    "coordinator.coordinator", "coordinator.core.keyed_task.lane_producer", "coordinator.scheduler.beat",
    "coordinator.core.worker.bootstep", "coordinator.core.worker.inspected",
    "httpcore", "httpx", "importlib.resources.readers", "kombu.transport.redis", "ldap",
    "ldap.controls.readentry", "ldap.filter", "lxml.etree", "psutil", "pydantic", "redis", "rich.live", "rich.progress",
    "rich.table", "sqlalchemy", "sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.sqlite", "sqlite3", "tomllib",
    "yaml",
)  # fmt: skip
# The package itself and the app read the environment as they are imported, so each program does that.
OF_SERVICE = (
    "tasks.batches", "tasks.batches.deliveries", "tasks.catalog.sightings", "tasks.components",
    "tasks.database.migrate", "tasks.harvest", "tasks.member_node", "tasks.nodelist", "tasks.nodelist.write_back",
    "tasks.nodelist.ldap.store", "tasks.nodelist.replicated", "tasks.nodelist.stores", "tasks.nodelist.xml_store",
    "tasks.settings",
)  # fmt: skip
LONGEST = 1 << 20  # bytes of a message


def _named() -> list[str]:
    return [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]


NAMED = _named()
"""The places where this process looks, and a program with another PYTHONPATH does not."""


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork a program for each message. In a fork: what it has to run; at the end: None."""
    woken, waking = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ears: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 4096)
            _bury(ears)
        if control not in ready:
            continue
        message, fds, _, _ = socket.recv_fds(control, LONGEST, 4)
        if not message:
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (control, *ears.values()):
                one.close()
            program: dict[str, Any] = json.loads(message)
            for number in (woken, waking):
                os.close(number)
            with socket.socket(fileno=fds[3]) as ear:
                become(program, fds[:3])
                ear.send(f"began {os.getpid()}".encode())
            return program
        for number in fds[:3]:
            os.close(number)
        ears[pid] = socket.socket(fileno=fds[3])


def _bury(ears: dict[int, socket.socket]) -> None:
    """Say of each that ended how it did."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            pid, status = ended
            with ears.pop(pid) as ear, suppress(OSError):  # it may have no listener any more
                ear.send(f"ended {os.waitstatus_to_exitcode(status)}".encode())


def become(program: dict[str, Any], standard: list[int]) -> None:
    """As a process that was just started so."""
    if program["session"]:
        os.setsid()
    for number, fd in enumerate(standard):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(program["env"])
    time.tzset()
    os.chdir(program["folder"])


def show(*argv: str) -> None:
    """As its command line; else `ps` and psutil would show that of the process from which all are forked."""
    begin, end = (int(one) for one in Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    shown = "\0".join(argv).encode()[: end - begin - 1]
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, shown, len(shown))


def run(argv: list[str]) -> None:
    """As `python -m …`, `python -c …` or `python FILE …`, and shown so."""
    show(sys.executable, *argv)
    sys.path[:] = ["", *_named(), *(place for place in sys.path if place not in NAMED)]
    for place in _named():
        if place not in NAMED and (site := Path(place) / "sitecustomize.py").exists():
            runpy.run_path(str(site))
    kind, what, *rest = argv if argv[0] in ("-m", "-c") else (argv[0], "")
    if kind == "-m":
        sys.argv[:] = [what, *rest]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv[:] = ["-c", *rest]
        exec(compile(what, "<program>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv[:] = argv
        sys.path[0] = str(Path(kind).absolute().parent)
        runpy.run_path(str(Path(kind).absolute()), run_name="__main__")


def leave(status: int) -> None:
    """As Python ends, but without taking apart all the libraries: for that, the system would copy most of the memory
    that this fork shares, which takes longer than most programs.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def load() -> None:
    package = ModuleType("tasks")
    package.__path__ = [str(Path(__file__).parents[2] / "tasks")]
    sys.modules["tasks"] = package
    for name in (*LIBRARIES, *OF_SERVICE):
        with suppress(ImportError):  # python-ldap, where a user has none
            importlib.import_module(name)
    del sys.modules["tasks"]
    assert "tasks.app" not in sys.modules


if __name__ == "__main__":
    load()
    assert threading.active_count() == 1
    gc.freeze()
    found = serve(socket.socket(fileno=int(sys.argv[1])))
    if found is not None:
        status = 0
        try:
            run(found["argv"])
        except SystemExit as asked:
            if not isinstance(asked.code, int | None):  # a sentence, which Python prints
                raise
            status = asked.code or 0
        leave(status)
