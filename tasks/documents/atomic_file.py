"""Writes a file whole or not at all, also over a power cut."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path


def replace(path: Path, body: bytes, beside: str = "") -> None:
    """Replace the content of the file, and keep its permissions. Raises OSError, and then the file is as before.

    `beside`: the name of the new file until it replaces the old one, by default `.<name>.new`. A killed process leaves
    it behind.
    """
    new = path.with_name(beside or f".{path.name}.new")
    try:
        with new.open("wb") as file:
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(body)
            file.flush()
            # Readers recognize a new file by its time, and the clock of a file system is too coarse for that.
            os.utime(file.fileno(), ns=(time.time_ns(),) * 2)
            os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
