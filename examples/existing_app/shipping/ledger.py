"""A file in which each task writes what it does."""

import os
from pathlib import Path


def note(text: str) -> None:
    with Path(os.environ.get("SHIPPING_LEDGER", "ledger.txt")).open("a") as ledger:
        ledger.write(f"{text}\n")
