"""A delivery as it lies on disk: `B…-RT…/` with pages, their metadata, a manifest, and `transfer_acknowledged`.

B400022028241-RT1/
    B400022028241-0001.jp2          a page
    B400022028241-0001.mets.xml     its metadata
    …
    manifest-sha256.txt             a checksum for each of them, as sha256sum writes it
    transfer_acknowledged           the deliverer writes it last
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MANIFEST = "manifest-sha256.txt"
ACKNOWLEDGED = "transfer_acknowledged"
PAGE, METADATA = ".jp2", ".mets.xml"

_ITEM = re.compile(r"(B\d+)-RT([1-9]\d*)")
_LINE = re.compile(r"([0-9a-f]{64}) [ *]([^/\\\s]+)")


class ManifestUnreadable(ValueError):
    """The manifest is missing, or has an invalid line."""


@dataclass(frozen=True)
class Delivery:
    path: Path

    @cached_property
    def batch(self) -> str:
        """Raises ValueError if the folder does not have the name of a delivery."""
        found = _ITEM.fullmatch(self.path.name)
        if not found:
            raise ValueError(f"{self.path.name} is no name of a delivery, such as B400022028241-RT1")
        return found[1]

    @property
    def item(self) -> str:
        return self.path.name

    def names(self) -> set[str]:
        """The existing files, without the manifest and the acknowledgement."""
        found = {path.name for path in self.path.iterdir() if not path.name.startswith(".")}
        return found - {MANIFEST, ACKNOWLEDGED}

    def pages(self) -> list[str]:
        """The existing pages, in order, without their suffix."""
        return sorted(name.removesuffix(PAGE) for name in self.names() if name.endswith(PAGE))

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def manifest(self) -> dict[str, str]:
        """The checksum of each file. Raises ManifestUnreadable."""
        try:
            lines = self.read(MANIFEST).decode().splitlines()
        except (FileNotFoundError, UnicodeDecodeError) as error:
            raise ManifestUnreadable(str(error)) from error
        found: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            match = _LINE.fullmatch(line)
            if not match or match[2] in found:
                raise ManifestUnreadable(f"line {number}: {line[:80]!r}")
            found[match[2]] = match[1]
        return found

    def number(self, name: str) -> int | None:
        """The number of a page in the name of its file; None for a file of another batch."""
        found = re.fullmatch(rf"{self.batch}-(\d{{4}})({re.escape(PAGE)}|{re.escape(METADATA)})", name)
        return int(found[1]) if found else None


def write_manifest(checksums: dict[str, str]) -> bytes:
    return "".join(f"{checksum}  {name}\n" for name, checksum in sorted(checksums.items())).encode()
