"""A delivery, and the pipeline's work on it, one after another and without any node."""

from collections.abc import Callable
from pathlib import Path

import pytest

from examples.batches import archive, images, metadata, people, structure
from examples.batches.deliver import deliver
from examples.batches.delivery import Delivery
from examples.batches.place import Place
from tasks.batches import Failure

ITEM = "B400022028241-RT1"
Work = Callable[[Delivery, Place], list[Failure]]


def reminded(delivery: Delivery, place: Place) -> list[Failure]:
    return people.warning_email_sent(delivery, place, patience=0.0)


# Each comes after those on whose findings it builds.
WORK: dict[str, Work] = {
    "Metadata_Archived": archive.metadata_archived,
    "Data_Archived": archive.data_archived,
    "Structure_Checked": structure.structure_checked,
    "JPylyzed": images.jpylyzed,
    "Histogrammed": images.histogrammed,
    "Metadata_checked": metadata.metadata_checked,
    "Editions_relations_generated": metadata.editions_relations_generated,
    "Manual_QA_Flagged": people.manual_qa_flagged,
    "Warning_Email_Sent": reminded,
}


def worked(delivery: Delivery, place: Place) -> dict[str, list[Failure]]:
    """The failures of each work, where it found any."""
    return {name: found for name, work in WORK.items() if (found := work(delivery, place))}


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def delivery(place: Place) -> Delivery:
    return Delivery(deliver(place.deliveries, ITEM))
