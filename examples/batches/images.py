"""JPylyzed and Histogrammed: each page is analysed as an image; the results are stored beside the archive."""

import json
from typing import Any
from xml.etree import ElementTree

from jpylyzer import jpylyzer
from PIL import Image

from tasks.batches import Failure

from .delivery import PAGE, Delivery
from .place import Place

FINDINGS = ".jpylyzer.xml"
HISTOGRAM = ".histogram.json"


def jpylyzed(delivery: Delivery, place: Place) -> list[Failure]:
    """Check that each page is valid JPEG 2000, and store its properties."""
    folder, failures = place.characterised / delivery.item, list[Failure]()
    pages = delivery.pages()
    place.keep_only(folder, (page + FINDINGS for page in pages))
    for page in pages:
        found = jpylyzer.checkOneFile(str(delivery.path / (page + PAGE)))
        _forget_the_file(found)
        place.put(folder / (page + FINDINGS), ElementTree.tostring(found, encoding="utf-8"))
        if found.findtext("isValid") != "True":
            failures.append(Failure(page + PAGE, "jp2", "jpylyzer", "the page is not valid JPEG 2000", _broken(found)))
    return failures


def size_of(findings: bytes) -> tuple[int, int] | None:
    """The width and height from jpylyzer; None if it found none."""
    header = ElementTree.fromstring(findings).find("properties/jp2HeaderBox/imageHeaderBox")
    width, height = (header.findtext(name) for name in ("width", "height")) if header is not None else (None, None)
    return (int(width), int(height)) if width and height else None


def histogrammed(delivery: Delivery, place: Place) -> list[Failure]:
    """Count the pixels of each page by level of grey, or of each colour."""
    folder, failures = place.histograms / delivery.item, list[Failure]()
    pages = delivery.pages()
    place.keep_only(folder, (page + HISTOGRAM for page in pages))
    for page in pages:
        try:
            counted = _counted(delivery, page)
        except OSError as error:
            failures.append(Failure(page + PAGE, "image", "histogram", "the page cannot be decoded", str(error)))
            continue
        place.put(folder / (page + HISTOGRAM), json.dumps(counted).encode())
    return failures


def _counted(delivery: Delivery, page: str) -> dict[str, Any]:
    """Raises OSError."""
    with Image.open(delivery.path / (page + PAGE), formats=("JPEG2000",)) as image:
        return {"page": page, "bands": image.getbands(), "size": image.size, "histogram": image.histogram()}


def _forget_the_file(found: ElementTree.Element) -> None:
    """Remove the path and the time, so that a second run has the same result."""
    for info in found.findall("fileInfo"):
        found.remove(info)


def _broken(found: ElementTree.Element) -> str:
    """The tests that the page failed, or the error of jpylyzer."""
    tests = found.find("tests")
    names = [one.tag for one in (tests.iter() if tests is not None else ()) if one.text == "False"]
    return ", ".join(names) or found.findtext("statusInfo/failureMessage") or "no test is named"
