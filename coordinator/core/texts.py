"""Checks the characters of keys and names, escapes those in texts for people, and hints at near names.

Some characters change how the text around them looks on a screen: control characters, separators of lines and
paragraphs, and those that change the direction of writing (U+202A to U+202E, U+2066 to U+2069).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

_TURNS = r"\u2028-\u202e\u2066-\u2069"
REFUSED_CHARACTERS = rf"\x00-\x1f\x7f\x85{_TURNS}"  # characters that no key, id or name may have
LONGEST_NAME = 255  # bytes in UTF-8

_REFUSED = re.compile(f"[{REFUSED_CHARACTERS}]")
_STEERS = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNS}]")


def check_name(kind: str, name: object) -> str:
    """Check the name of a task, queue, label, node or entry (`kind` says which), and return the name. Raises ValueError
    for one that is empty, too long or not printable.
    """
    if isinstance(name, str) and name and name.isprintable() and len(name.encode()) <= LONGEST_NAME:
        return name
    seen = repr(name)
    seen = seen if len(seen) <= 80 else f"{seen[:80]}…"
    raise ValueError(f"{kind} {seen}: a name is 1 to {LONGEST_NAME} bytes of printable text")


def escaped(text: str) -> str:
    """Return `text` with each character that a key or name may not have written as `\\xNN` or `\\uNNNN`."""
    return _REFUSED.sub(_escape, text)


def visible(text: str) -> str:
    """Return `text` with each character that controls a terminal, or changes how the text around it looks, written as
    `\\xNN` or `\\uNNNN`. Tabs and newlines are kept.
    """
    return _STEERS.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def near(name: object, known: Collection[str]) -> str:
    """Return a hint for an error message, ` (did you mean 'x'?)`, with the name in `known` that is most like `name`; ""
    where none is like it.
    """
    close = difflib.get_close_matches(str(name), known, 1, cutoff=0.45)
    return f" (did you mean {close[0]!r}?)" if close else ""
