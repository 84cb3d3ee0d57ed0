"""Replaces a file's content completely or not at all, even if the power fails."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path


def replace(path: Path, body: bytes, beside: str = "") -> None:
    """Replace the content of the file at `path`, and keep its permissions. Raises OSError; then the file is unchanged.

    The content is written to a new file, which then replaces the old one. `beside`: the name of the new file in the
    same folder; "": `.<name>.new`. A process that is killed may leave the new file behind.
    """
    new = path.with_name(beside or f".{path.name}.new")
    try:
        with new.open("wb") as file:
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(body)
            file.flush()
            # Readers recognize a new file by its modification time. The time that a file system sets is too coarse.
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
