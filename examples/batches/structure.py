"""Structure_Checked: the names, the sequence of the pages, the checksums, and the copies in the archive."""

from collections.abc import Iterator
from pathlib import Path

from tasks.batches import Failure

from .delivery import MANIFEST, METADATA, PAGE, Delivery, ManifestUnreadable
from .files import digest
from .place import Place

CHECKER = "structure-checker"


def structure_checked(delivery: Delivery, place: Place) -> list[Failure]:
    try:
        manifest = delivery.manifest()
    except ManifestUnreadable as error:
        return [_failure(MANIFEST, "manifest", "the manifest cannot be read", str(error))]
    there = delivery.names()
    return [
        *_checksums(delivery, manifest, there),
        *_names(delivery, there | manifest.keys()),
        *_archived(delivery, place, manifest, there),
    ]


def _checksums(delivery: Delivery, manifest: dict[str, str], there: set[str]) -> Iterator[Failure]:
    for name in sorted(there - manifest.keys()):
        yield _failure(name, "unexpected", "the manifest does not name this file")
    for name in sorted(manifest.keys() - there):
        yield _failure(name, "missing", "the manifest names this file, and it is not there")
    for name in sorted(there & manifest.keys()):
        found = digest(delivery.read(name))
        if found != manifest[name]:
            said = f"the manifest says {manifest[name]}, the file has {found}"
            yield _failure(name, "checksum", "the file has another checksum than the manifest", said)


def _names(delivery: Delivery, names: set[str]) -> Iterator[Failure]:
    """A missing file counts as correctly named, so that one defect gives one failure."""
    numbers: dict[int, set[str]] = {}
    for name in sorted(names):
        number = delivery.number(name)
        if number is None:
            yield _failure(name, "name", "the file is not named as a page of this batch")
        else:
            numbers.setdefault(number, set()).add(name)
    if not numbers:
        yield _failure(delivery.item, "sequence", "the delivery has no page")
    for number in range(1, max(numbers, default=0) + 1):
        page = f"{delivery.batch}-{number:04}"
        lacking = {page + PAGE, page + METADATA} - numbers.get(number, set())
        if len(lacking) == 2:
            yield _failure(page, "sequence", "a page is left out of the sequence")
        for name in sorted(lacking) if len(lacking) == 1 else ():
            yield _failure(name, "sequence", "a page has no image, or no metadata")
    if 0 in numbers:
        yield _failure(f"{delivery.batch}-0000", "sequence", "the pages are numbered from 1")


def _archived(delivery: Delivery, place: Place, manifest: dict[str, str], there: set[str]) -> Iterator[Failure]:
    """A delivery that was repaired after it was archived has to be archived again."""
    for name in sorted(there & manifest.keys()):
        if delivery.number(name) is None:
            continue
        copy = (place.data if name.endswith(PAGE) else place.metadata) / delivery.item / name
        wrong = _wrong(copy, delivery.path / name)
        if wrong:
            hint = "restart from Metadata_Archived"
            yield _failure(name, "archive", f"{wrong}: {hint}", str(copy))


def _wrong(copy: Path, original: Path) -> str:
    try:
        same = copy.read_bytes() == original.read_bytes()
    except FileNotFoundError:
        return "the archive lacks the file"
    return "" if same else "the archive has another file"


def _failure(name: str, kind: str, description: str, details: str = "") -> Failure:
    return Failure(name, kind, CHECKER, description, details)
