"""Groups failures: a failure's kind is its reason without the parts that differ from object to object."""

import re
from urllib.parse import quote

_ADDRESS = re.compile(r" \(https?://\S*\)|https?://[^\s)]+")
_NUMBER = re.compile(
    r"(?<!answers )\b(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|0x[0-9a-f]+|[0-9]+)\b", re.IGNORECASE
)


def kind_of(reason: str, member: str, pid: str) -> str:
    """Return a failure's reason without the member, the pid, URLs and numbers; the HTTP status of an answer stays."""
    text = reason.removeprefix(f"{member}: ")
    for form in {quote(pid, safe=""), pid}:
        text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", "PID", text)
    return _NUMBER.sub("N", _ADDRESS.sub("", text))
