"""Each work of the pipeline finds what is wrong, says it, and writes what the next one reads."""

import itertools
import json
import mailbox
from dataclasses import replace
from io import BytesIO

import pytest
from PIL import Image

from examples.batches import archive, images, metadata, mets, people, structure
from examples.batches.deliver import DEFECTS, deliver, mend
from examples.batches.delivery import MANIFEST, Delivery, write_manifest
from examples.batches.files import digest, put
from examples.batches.place import Place
from tasks.batches import Failure
from tests.examples.conftest import ITEM, WORK, content, worked

PAGE = "B400022028241-0002"


def kinds(found: dict[str, list[Failure]]) -> dict[str, list[tuple[str, str]]]:
    return {name: [(one.file, one.type) for one in failures] for name, failures in found.items()}


def again(delivery: Delivery, name: str, body: bytes | None) -> None:
    """Another file, or none, and the manifest that fits."""
    if body is None:
        (delivery.path / name).unlink()
    else:
        put(delivery.path / name, body)
    put(delivery.path / MANIFEST, write_manifest({one: digest(delivery.read(one)) for one in delivery.names()}))


def picture(grey: int, other: int | None = None, kind: str = "JPEG2000") -> bytes:
    """Half of it has the other grey."""
    body, image = BytesIO(), Image.new("L", (96, 128), grey)
    image.paste(grey if other is None else other, (0, 0, 48, 128))
    image.save(body, kind)
    return body.getvalue()


def test_a_delivery_without_defect_passes_all(delivery: Delivery, place: Place) -> None:
    assert worked(delivery, place) == {}


@pytest.mark.parametrize(
    ("defect", "found"),
    {
        "checksum": {"Structure_Checked": [(f"{PAGE}.jp2", "checksum")]},
        "missing": {"Structure_Checked": [(f"{PAGE}.jp2", "missing")]},
        "malformed": {"Metadata_checked": [(f"{PAGE}.mets.xml", "mets")]},
        "truncated": {"JPylyzed": [(f"{PAGE}.jp2", "jp2")], "Histogrammed": [(f"{PAGE}.jp2", "image")]},
        "size": {"Metadata_checked": [(f"{PAGE}.mets.xml", "size")]},
    }.items(),
)
def test_a_defect_is_found_by_the_work_that_looks_for_it(
    place: Place, defect: str, found: dict[str, list[tuple[str, str]]]
) -> None:
    delivery = Delivery(deliver(place.deliveries, ITEM, defect=defect))
    seen = kinds(worked(delivery, place))
    assert {name: seen.get(name) for name in found} == found
    assert "Structure_Checked" in found or "Structure_Checked" not in seen


def test_every_defect_of_the_script_has_its_case() -> None:
    (cases,) = (mark.args[1] for mark in test_a_defect_is_found_by_the_work_that_looks_for_it.pytestmark)
    assert {defect for defect, _ in cases} == set(DEFECTS)


def test_a_delivery_mended_after_it_was_archived_has_to_be_archived_again(place: Place) -> None:
    delivery = Delivery(deliver(place.deliveries, ITEM, defect="checksum"))
    worked(delivery, place)
    mend(delivery.path)
    (failure,) = structure.structure_checked(delivery, place)
    assert (failure.file, failure.type) == (f"{PAGE}.jp2", "archive")
    assert "restart from Metadata_Archived" in failure.description
    assert worked(delivery, place) == {}


def test_an_archive_holds_the_files_of_the_delivery_and_no_others(delivery: Delivery, place: Place) -> None:
    put(place.data / ITEM / "B400022028241-0009.jp2", b"of an earlier delivery")
    archive.metadata_archived(delivery, place)
    archive.data_archived(delivery, place)
    data, texts = content(place.data / ITEM), content(place.metadata / ITEM)
    assert data | texts == {name: body for name, body in content(delivery.path).items() if body}
    assert {name.rpartition(".")[2] for name in data} == {"jp2", "txt"}


@pytest.mark.parametrize(
    ("name", "body", "kind"),
    [
        (f"{PAGE}.jp2", None, "sequence"),
        (f"{PAGE}.mets.xml", None, "sequence"),
        ("B1-0001.jp2", b"of another batch", "name"),
        ("B400022028241-0006.jp2", b"with no metadata, after a gap", "sequence"),
        ("B400022028241-0000.jp2", b"with no metadata, too early", "sequence"),
    ],
)
def test_names_and_sequence_are_checked_where_the_manifest_agrees(
    delivery: Delivery, place: Place, name: str, body: bytes | None, kind: str
) -> None:
    again(delivery, name, body)
    archive.metadata_archived(delivery, place)
    archive.data_archived(delivery, place)
    assert {one.type for one in structure.structure_checked(delivery, place)} == {kind}


def test_a_page_that_is_left_out_everywhere_is_told(delivery: Delivery, place: Place) -> None:
    (delivery.path / f"{PAGE}.mets.xml").unlink()
    again(delivery, f"{PAGE}.jp2", None)
    assert kinds(worked(delivery, place))["Structure_Checked"] == [(PAGE, "sequence")]


def test_a_file_that_the_manifest_does_not_name_and_a_manifest_that_is_away_are_told(
    delivery: Delivery, place: Place
) -> None:
    put(delivery.path / "B400022028241-0004.tif", b"")
    assert ("B400022028241-0004.tif", "unexpected") in kinds(worked(delivery, place))["Structure_Checked"]
    (delivery.path / MANIFEST).unlink()
    assert kinds(worked(delivery, place))["Structure_Checked"] == [(MANIFEST, "manifest")]


@pytest.mark.parametrize("body", [b"", b"no image", picture(0)[:100], picture(0, kind="PNG")])
def test_a_page_that_is_no_image_fails_in_both_looks_at_images(delivery: Delivery, place: Place, body: bytes) -> None:
    again(delivery, f"{PAGE}.jp2", body)
    found = kinds({name: WORK[name](delivery, place) for name in ("JPylyzed", "Histogrammed")})
    assert found == {"JPylyzed": [(f"{PAGE}.jp2", "jp2")], "Histogrammed": [(f"{PAGE}.jp2", "image")]}


def test_jpylyzer_names_the_tests_that_a_page_fails(place: Place) -> None:
    delivery = Delivery(deliver(place.deliveries, ITEM, defect="truncated"))
    (failure,) = images.jpylyzed(delivery, place)
    assert "foundEOCMarker" in failure.details


def test_a_histogram_counts_every_pixel(delivery: Delivery, place: Place) -> None:
    images.histogrammed(delivery, place)
    told = json.loads((place.histograms / ITEM / f"{PAGE}.histogram.json").read_text())
    assert sum(told["histogram"]) == 96 * 128
    assert told["histogram"][235] > 96 * 128 / 3


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (b">2<", b">3<", "page"),
        (b'href="B400022028241-0002', b'href="B400022028241-0003', "page"),
        (b'SIZE="', b'SIZE="1', "file"),
        (b"<mets:mets ", b"<!DOCTYPE a [<!ENTITY b 'c'>]><mets:mets ", "mets"),
        (b"imageWidth", b"imageLength", "mets"),
        (b">96<", b">wide<", "mets"),
    ],
)
def test_metadata_that_does_not_agree_with_the_page_is_told(
    delivery: Delivery, place: Place, old: bytes, new: bytes, kind: str
) -> None:
    text = delivery.read(f"{PAGE}.mets.xml")
    assert old in text
    again(delivery, f"{PAGE}.mets.xml", text.replace(old, new))
    assert kinds(worked(delivery, place))["Metadata_checked"] == [(f"{PAGE}.mets.xml", kind)]


def test_editions_name_their_newspaper_and_all_their_pages(delivery: Delivery, place: Place) -> None:
    assert not metadata.editions_relations_generated(delivery, place)
    told = json.loads((place.editions / f"{ITEM}.json").read_text())["editions"]
    assert [page for edition in told for page in edition["hasPart"]] == delivery.pages()
    assert len(told) == 2
    assert {edition["isPartOf"] for edition in told} == {
        mets.read(delivery.read(f"{page}.mets.xml")).title for page in delivery.pages()
    }


@pytest.mark.parametrize(("body", "why"), [(picture(255), "nearly one colour"), (picture(3, 30), "nearly black")])
def test_a_person_looks_at_blank_pages_and_at_a_sample(delivery: Delivery, place: Place, body: bytes, why: str) -> None:
    again(delivery, f"{PAGE}.jp2", body)
    images.histogrammed(delivery, place)
    assert not people.manual_qa_flagged(delivery, place)
    told = json.loads((place.flagged / f"{ITEM}.json").read_text())["pages"]
    assert told == [{"page": "B400022028241-0001", "why": "a sample"}, {"page": PAGE, "why": why}]


def test_a_batch_without_histograms_is_not_flagged(delivery: Delivery, place: Place) -> None:
    assert len(people.manual_qa_flagged(delivery, place)) == 4
    assert not place.flagged.exists()


def test_one_reminder_comes_after_the_patience_also_when_the_mail_was_read(delivery: Delivery, place: Place) -> None:
    worked(delivery, place)
    with pytest.raises(people.TooEarly, match="may wait for another"):
        people.warning_email_sent(delivery, Place(place.root, patience=60))
    box = mailbox.Maildir(place.mail)
    ((key, message),) = box.items()
    assert message["Subject"] == f"{ITEM} waits for you"
    message.set_subdir("cur")
    message.add_flag("S")
    box[key] = message
    assert not people.warning_email_sent(delivery, place)
    assert {path.parent.name for path in place.mail.rglob("*.pipeline*")} == {"cur"}


def test_a_batch_that_is_flagged_again_waits_since_the_first_time(delivery: Delivery, place: Place) -> None:
    worked(delivery, place)
    before = content(place.root)
    assert worked(delivery, place) == {}
    assert content(place.root) == before


class Lost(Exception):
    """Another run has the batch."""


def lost() -> None:
    raise Lost


@pytest.mark.parametrize("name", [name for name in WORK if not name.endswith("hecked")])  # those write nothing
def test_a_run_that_has_lost_its_batch_changes_nothing_any_more(delivery: Delivery, place: Place, name: str) -> None:
    for earlier in itertools.takewhile(lambda one: one != name, WORK):
        WORK[earlier](delivery, place)
    for folder in (place.metadata, place.data, place.characterised, place.histograms):
        put(folder / ITEM / "of an earlier delivery", b"")
    before = content(place.root)
    with pytest.raises(Lost):
        WORK[name](delivery, replace(place, check=lost))
    assert content(place.root) == before
