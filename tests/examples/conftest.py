"""A delivery, and the pipeline's work on it, one after another and without any node."""

from pathlib import Path

import pytest

from examples.batches.deliver import deliver
from examples.batches.delivery import Delivery
from examples.batches.place import Place
from examples.batches.stages import STAGES
from tasks.batches import Failure

ITEM = "B400022028241-RT1"
# Each comes after those on whose findings it builds.
WORK = {stage.event: stage.work for stage in STAGES}


def worked(delivery: Delivery, place: Place) -> dict[str, list[Failure]]:
    """The failures of each work, where it found any."""
    return {name: found for name, work in WORK.items() if (found := work(delivery, place))}


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, patience=0)


@pytest.fixture
def delivery(place: Place) -> Delivery:
    return Delivery(deliver(place.deliveries, ITEM))
