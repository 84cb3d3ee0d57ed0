"""What keys and names may have in them, and how people see any other text.

Some characters alter how a line around them is read: control characters, the ends of lines and of paragraphs, and those
that turn the direction of writing (U+202A to U+202E, U+2066 to U+2069).
"""

from __future__ import annotations

import re

_TURNS = r"\u2028-\u202e\u2066-\u2069"
REFUSED_CHARACTERS = rf"\x00-\x1f\x7f\x85{_TURNS}"  # no key, id or name has these
LONGEST_NAME = 255  # bytes

_REFUSED = re.compile(f"[{REFUSED_CHARACTERS}]")
_STEERS = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNS}]")


def check_name(what: str, name: object) -> str:
    """Return the name of a task, queue, label, node or entry. Raises ValueError, which says what a name is."""
    if isinstance(name, str) and name and name.isprintable() and len(name.encode()) <= LONGEST_NAME:
        return name
    seen = repr(name)
    seen = seen if len(seen) <= 80 else f"{seen[:80]}…"
    raise ValueError(f"{what} {seen}: a name is 1 to {LONGEST_NAME} bytes of printable text")


def escaped(text: str) -> str:
    """The text as a key or a name can have it."""
    return _REFUSED.sub(_escape, text)


def visible(text: str) -> str:
    """The text without what would steer a terminal or alter the line around it; tabs and newlines stay."""
    return _STEERS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
