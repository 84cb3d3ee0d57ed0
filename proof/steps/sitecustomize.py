"""Has a Python program of the laboratory load the recorder with the steps: its folder stands on PYTHONPATH."""

import os
import select
import time
from pathlib import Path
from typing import Any

from coordinator.core.store import library

_RECORDER = Path(__file__).with_name("recorder.lua").read_text(encoding="utf-8")
_assemble = library.assemble


def _recorded(text_of: Any = library.text_of, before: str = "", *rest: Any, **named: Any) -> library.Library:
    return _assemble(text_of, _RECORDER + before, *rest, **named)


if "faketime" in os.environ.get("LD_PRELOAD", ""):
    # libfaketime leaves the monotonic clock as it is, but not a sleep until an instant of that clock.
    time.sleep = lambda seconds: select.select((), (), (), float(seconds)) and None

library.assemble = _recorded
library.current.cache_clear()
