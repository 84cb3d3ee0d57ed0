"""A task of the service that hears of objects: it adds a line for each event to the file that HEARD names."""

import json
import os
from pathlib import Path

from tasks.app import app

HEARD = Path(os.environ.get("HEARD", os.devnull))


@app.task(queue="hears")
def on_object(event: dict[str, str | int]) -> None:
    if HEARD.with_name("broken").exists():
        raise ValueError("it is broken")
    with HEARD.open("ab", buffering=0) as out:
        out.write((json.dumps([event[name] for name in ("number", "member", "pid", "kind")]) + "\n").encode())
