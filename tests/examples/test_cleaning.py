"""What the pipeline keeps of a batch that a person has approved."""

from dataclasses import replace
from pathlib import Path

import pytest

from examples.batches.cleaning import leftovers_removed
from examples.batches.deliver import deliver
from examples.batches.delivery import Delivery
from examples.batches.files import put
from examples.batches.place import Place
from tests.examples.conftest import content, worked

FIRST, SECOND, OTHER = "B400022028241-RT1", "B400022028241-RT2", "B400022028242-RT1"


def delivered(place: Place, item: str) -> Delivery:
    delivery = Delivery(deliver(place.deliveries, item, pages=2))
    worked(delivery, place)
    return delivery


def where(place: Place, item: str) -> set[str]:
    """The folders that have something of the item, deliveries aside."""
    return {path.split("/")[0] for path in content(place.root) if item in path} - {"deliveries"}


def test_an_approved_batch_leaves_its_archive_its_findings_and_its_editions(place: Place) -> None:
    approved = delivered(place, SECOND)
    for item in (FIRST, OTHER):
        delivered(place, item)
    put(place.sent / f"1.5.{FIRST}.pipeline", b"")
    put(place.flagged / f".{SECOND}.json.aa.new", b"of a run that goes on")
    everything = where(place, OTHER)
    assert everything == {"archive", "jpylyzer", "histograms", "manual-qa", "editions", "mail"}
    for _ in range(2):
        assert not leftovers_removed(approved, place)
        assert where(place, FIRST) == {"archive"}
        assert where(place, SECOND) == {"archive", "jpylyzer", "histograms", "editions", "manual-qa"}
        assert [path.name for path in place.flagged.iterdir() if SECOND in path.name] == [f".{SECOND}.json.aa.new"]
        assert where(place, OTHER) == everything


def test_a_mail_that_a_person_has_read_stays(place: Place) -> None:
    approved = delivered(place, FIRST)
    (unread,) = (place.mail / "new").iterdir()
    read = unread.rename(place.mail / "cur" / f"{unread.name}:2,S")
    leftovers_removed(approved, place)
    assert read.exists()


class Lost(Exception):
    """Another run has the batch."""


def lost() -> None:
    raise Lost


def test_a_run_that_has_lost_its_batch_removes_nothing(place: Place) -> None:
    approved = delivered(place, FIRST)
    before = content(place.root)
    with pytest.raises(Lost):
        leftovers_removed(approved, replace(place, check=lost))
    assert content(place.root) == before


def test_nothing_is_wrong_where_there_is_nothing(tmp_path: Path) -> None:
    assert not leftovers_removed(Delivery(tmp_path / "deliveries" / FIRST), Place(tmp_path))
