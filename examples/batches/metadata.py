"""Metadata_checked and Editions_relations_generated: from the METS of each page."""

import json
from collections.abc import Iterator

from tasks.batches import Failure
from tasks.member_node.safe_xml import Unreadable

from .delivery import METADATA, PAGE, Delivery
from .files import digest
from .images import FINDINGS, size_of
from .mets import Page, read
from .place import Place

CHECKER = "metadata-checker"


def metadata_checked(delivery: Delivery, place: Place) -> list[Failure]:
    """Check that each METS agrees with the page's place in the list, its file, and the results of jpylyzer."""
    failures = list[Failure]()
    for page in delivery.pages():
        name = page + METADATA
        try:
            said = read(delivery.read(name))
        except (Unreadable, FileNotFoundError) as error:
            failures.append(Failure(name, "mets", CHECKER, "the metadata cannot be read", str(error)))
            continue
        failures += (Failure(name, kind, CHECKER, text) for kind, text in _wrong(delivery, place, page, said))
    return failures


def _wrong(delivery: Delivery, place: Place, page: str, said: Page) -> Iterator[tuple[str, str]]:
    image = page + PAGE
    body = delivery.read(image)
    if said.name != image:
        yield "page", f"the metadata is of {said.name}, not of {image}"
    if said.number != delivery.number(image):
        yield "page", f"the metadata says page {said.number}"
    if (said.checksum, said.size) != (digest(body), len(body)):
        yield "file", f"the metadata says {said.size} bytes and {said.checksum}, the file has others"
    found = size_of((place.characterised / delivery.item / (page + FINDINGS)).read_bytes())
    if (said.width, said.height) != found:
        measured = " x ".join(map(str, found)) if found else "no size"
        yield "size", f"the metadata says {said.width} x {said.height}, the image has {measured}"


def editions_relations_generated(delivery: Delivery, place: Place) -> list[Failure]:
    """Write each edition, with its newspaper and its pages, into one file of the item."""
    failures, editions = list[Failure](), dict[tuple[str, str, int], list[str]]()
    for page in delivery.pages():
        try:
            said = read(delivery.read(page + METADATA))
        except (Unreadable, FileNotFoundError) as error:
            failures.append(Failure(page + METADATA, "mets", "editions", "the metadata cannot be read", str(error)))
            continue
        editions.setdefault((said.title, said.date, said.edition), []).append(page)
    if not failures:
        relations = [
            {"edition": f"{date}-{number}", "isPartOf": title, "hasPart": pages}
            for (title, date, number), pages in sorted(editions.items())
        ]
        text = json.dumps({"item": delivery.item, "editions": relations}, indent=1, ensure_ascii=False)
        place.put(place.editions / f"{delivery.item}.json", text.encode())
    return failures
