"""What is on the disk at each moment of a rewrite of the append-only file, as a real server leaves it.

The server has a few lines of C in it, which copy its folder before each file that it renames or deletes. Meanwhile it
goes on to take steps.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from proof.power.files import FOLDER, MANIFEST, parts
from proof.power.load import Load, Mark, Written
from proof.power.server import Server, rewriting
from tests.harness.waiting import wait_until

SOURCE = Path(__file__).with_name("moments.c")
SLOWLY = 2000  # µs for each key that is written into a new base


class Moment(NamedTuple):
    """A copy of a server's folder. `acknowledged`: the number of the last mark whose step was answered before."""

    data: Path
    acknowledged: int
    about: str


def moments(folder: Path, program: str, seed: int = 1) -> tuple[Written, list[Moment]]:
    data, kept = folder / "data", folder / "moments"
    library = folder / "moments.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    server = Server(data, program, fsync="always")
    server.environ |= {"LD_PRELOAD": str(library), "POWER_DATA": str(data), "POWER_MOMENTS": str(kept)}
    with server, server.client() as client:
        load = Load(server, data, Random(seed))
        load.begin()
        for _ in range(20):
            load.act()
        client.config_set("rdb-key-save-delay", SLOWLY)
        kept.mkdir()
        client.bgrewriteaof()
        while rewriting(client):
            load.act()
            _keep(data, kept)
        wait_until(lambda: len(list((data / FOLDER).iterdir())) == 3)  # older ones are deleted beside
        _keep(data, kept)
        kept.rename(folder / "kept")
        load.client.close()
    written = Written(data, load.marks, load.fence)
    return written, [_moment(path, load.marks) for path in sorted((folder / "kept").iterdir())]


def _keep(data: Path, kept: Path) -> None:
    """As it is now, in the middle of what the server writes, unless it puts another file in place meanwhile."""
    before, copy = _listed(data), kept / f"{time.time():.9f}"
    with suppress(shutil.Error):  # a file was gone before it was read
        shutil.copytree(data, copy, ignore=shutil.ignore_patterns("temp-*", "socket"))
    if _listed(data) != before:
        shutil.rmtree(copy)


def _listed(data: Path) -> tuple[list[str], str]:
    folder = data / FOLDER
    return sorted(path.name for path in folder.iterdir()), (folder / MANIFEST).read_text()


def _moment(data: Path, marks: list[Mark]) -> Moment:
    when = float(data.name)
    return Moment(data, sum(mark.time <= when for mark in marks) - 1, _about(data))


def _about(data: Path) -> str:
    """Which files of the folder the manifest lists."""
    listed = [*(path.name for kind in "bhi" for path in parts(data, kind)), MANIFEST]
    others = sorted(path.name for path in (data / FOLDER).iterdir() if path.name not in listed)
    return f"lists {', '.join(listed[:-1])}" + (f"; beside: {', '.join(others)}" if others else "")
