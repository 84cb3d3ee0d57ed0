"""Leftovers_removed: an approved batch needs no flag, no reminder, and nothing of earlier round trips."""

from collections.abc import Iterator
from pathlib import Path

from tasks.batches import Failure

from .delivery import Delivery
from .files import is_of_the_living
from .place import Place


def leftovers_removed(delivery: Delivery, place: Place) -> list[Failure]:
    """The archive stays, and so do the findings and the editions of the approved delivery. A mail that a person has
    read is that person's.
    """
    for path in _leftovers(delivery, place):
        if not is_of_the_living(path):
            place.remove(path)
    return []


def _leftovers(delivery: Delivery, place: Place) -> Iterator[Path]:
    for folder in (place.flagged, place.mail / "new", place.mail / "tmp", place.sent):
        yield from _of(delivery, folder)
    for folder in (place.editions, place.histograms, place.characterised):
        yield from (path for path in _of(delivery, folder) if path.name.removesuffix(".json") != delivery.item)


def _of(delivery: Delivery, folder: Path) -> list[Path]:
    """All files of any round trip of the batch."""
    return [path for path in folder.glob("*") if f"{delivery.batch}-RT" in path.name]
