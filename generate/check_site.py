"""Refuse a built site that fetches from another host: python generate/check_site.py FOLDER"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

# What a browser fetches by itself; a link (`a`) waits for the reader.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data", "link": "href"}
_FOREIGN = re.compile(r"(?:[a-z]+:)?//")
_IN_CSS = re.compile(r"(?:url\(\s*|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)")


class _Fetched(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(FETCHED.get(tag, ""))
        if address and _FOREIGN.match(address):
            self.found.append(address)


def foreign(site: Path) -> Iterator[str]:
    """`file: address` of each thing that a page or a style sheet fetches from another host."""
    for path in sorted(site.rglob("*")):
        found: list[str] = []
        if path.suffix == ".html":
            parser = _Fetched()
            parser.feed(path.read_text(encoding="utf-8"))
            found = parser.found
        elif path.suffix in (".css", ".svg"):
            found = _IN_CSS.findall(path.read_text(encoding="utf-8"))
        yield from (f"{path.relative_to(site)}: {address}" for address in found)


if __name__ == "__main__":
    site = Path(sys.argv[1])
    if not (site / "index.html").exists():
        sys.exit(f"{site} holds no site")
    if wrong := list(foreign(site)):
        sys.exit("The site fetches from other hosts:\n" + "\n".join(wrong))
