"""Has a Python program of the laboratory load the recorder with the steps: its folder stands on PYTHONPATH."""

from pathlib import Path
from typing import Any

from coordinator.core.store import library

_RECORDER = Path(__file__).with_name("recorder.lua").read_text(encoding="utf-8")
_assemble = library.assemble


def _recorded(text_of: Any = library.text_of, before: str = "", *rest: Any, **named: Any) -> library.Library:
    return _assemble(text_of, _RECORDER + before, *rest, **named)


library.assemble = _recorded
library.current.cache_clear()
