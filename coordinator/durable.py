"""Files that are written whole or not at all, also over a power cut."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path


def replace(path: Path, body: bytes, beside: str = "") -> None:
    """Give the file another content; it keeps its permissions. Raises OSError, and then it is as it was.

    `beside`: the name of the file that is written first, which a killed process leaves: "" = one for each file.
    """
    new = path.with_name(beside or f".{path.name}.new")
    try:
        with new.open("wb") as file:
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(body)
            file.flush()
            # The clock of a file system is coarse: readers who look for another time are to see one.
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
