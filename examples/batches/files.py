"""Files that a killed process leaves whole or not at all.

A run may be killed and begun again, and a paused one may wake up beside its successor. So each file is written beside
its place under a name of its own, synced, and renamed. Just before the rename, the run checks that the batch is still
its own: what it has read may be older than what its successor has written.
"""

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

NEW, LEFTOVER = ".new", 3600.0
"""Seconds after which a new file belongs to a killed run: no run takes as long for one file."""


def digest(body: bytes) -> str:
    return sha256(body).hexdigest()


def nobody_else() -> None:
    """The check of the only writer."""


def put(path: Path, body: bytes, check: Callable[[], None] = nobody_else) -> None:
    """Write the file, and make its folder if that is missing. `check` raises if another run has the item now."""
    make_folder(path.parent)
    with suppress(FileNotFoundError):
        if path.read_bytes() == body:
            # The run that renamed it may have been killed before the folder was synced.
            _sync(path.parent)
            return
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}{NEW}")
    try:
        with new.open("xb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        check()
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def make_folder(path: Path) -> None:
    """Make the folder and its parents, so that they survive a power cut."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    _sync(path.parent)


def keep_only(folder: Path, names: Iterable[str]) -> None:
    """Remove all other files, and what killed runs left behind."""
    wanted = set(names)
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            if path.name not in wanted and not is_of_the_living(path) and path.is_file():
                path.unlink()
    _sync(folder)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content, if it exists."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    _sync(path.parent)


def is_of_the_living(path: Path) -> bool:
    """True for a new file that a run may still be writing."""
    with suppress(FileNotFoundError):
        return path.name.endswith(NEW) and time.time() - path.stat().st_mtime <= LEFTOVER
    return False


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
