"""Python programs that the tests run to their end, in processes that have the libraries loaded already.

A server of multiprocessing loads the libraries once for each test process, and forks for each program. What is ours is
imported anew in each, since it reads the environment as it is imported.
"""

import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path

LIBRARIES = (
    "celery.app", "celery.app.amqp", "celery.app.control", "celery.app.events", "celery.app.log",
    "celery.backends.redis", "celery.bin.celery", "celery.canvas", "celery.result", "httpx", "kombu.transport.redis",
    "ldap", "lxml.etree", "psutil", "pydantic", "redis", "rich.live", "rich.progress", "rich.table", "sqlalchemy",
    "sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.sqlite", "yaml",
)  # fmt: skip


def _go(argv: Sequence[str], folder: str, env: Mapping[str, str], out: str, err: str) -> None:
    """In the fork."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    for name, number in ((out, 1), (err, 2)):
        os.dup2(os.open(name, os.O_WRONLY), number)
    sys.path[:0] = ["", *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    kind, what, *sys.argv[1:] = argv
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<program>", "exec"), {"__name__": "__main__"})


def python(
    argv: Sequence[str], folder: Path, env: Mapping[str, str], timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """As `python -m …` or `python -c …` there, with this environment alone; run to its end."""
    context = get_context("forkserver")
    context.set_forkserver_preload(list(LIBRARIES))
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        process = context.Process(target=_go, args=(list(argv), str(folder), dict(env), out.name, err.name))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(list(argv), timeout)
        said = (Path(one.name).read_text() for one in (out, err))
        return subprocess.CompletedProcess(list(argv), process.exitcode, *said)


def at_once(number: int, imports: str, code: str) -> str:
    """A program of which so many processes run `code`, each as the `number`th; it fails where one of them does."""
    return f"""
import os, sys
{imports}
for number in range({number}):
    if not os.fork():
        break
else:
    sys.exit(any([os.wait()[1] for _ in range({number})]))
{code}
"""
