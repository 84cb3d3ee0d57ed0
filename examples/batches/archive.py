"""Metadata_Archived and Data_Archived: a copy of each file, read back and compared."""

from collections.abc import Iterable
from pathlib import Path

from tasks.batches import Failure

from .delivery import MANIFEST, METADATA, PAGE, Delivery
from .files import digest
from .place import Place


def metadata_archived(delivery: Delivery, place: Place) -> list[Failure]:
    return _copied(delivery, _ending(delivery, METADATA), place, place.metadata / delivery.item)


def data_archived(delivery: Delivery, place: Place) -> list[Failure]:
    return _copied(delivery, _ending(delivery, PAGE), place, place.data / delivery.item)


def _ending(delivery: Delivery, ending: str) -> list[str]:
    names = sorted(name for name in delivery.names() if name.endswith(ending))
    return [*names, *([MANIFEST] if (delivery.path / MANIFEST).is_file() else [])]


def _copied(delivery: Delivery, names: Iterable[str], place: Place, to: Path) -> list[Failure]:
    """Copy the files as they are; Structure_Checked checks them."""
    place.keep_only(to, names)
    failures = []
    for name in names:
        body = delivery.read(name)
        place.put(to / name, body)
        if digest((to / name).read_bytes()) != digest(body):
            failures.append(Failure(name, "archive", "archive", "the copy in the archive differs", str(to / name)))
    return failures
