"""Makes deliveries of small scanned pages, as a scanning firm would.

Run it: python -m examples.batches.deliver FOLDER --batches 20 --defect 3=checksum --defect 7=missing

A script that is killed leaves a folder without `transfer_acknowledged`, which nobody takes for a delivery. Run it
again, and it completes the folder. The same name gives the same pages each time.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import click
from PIL import Image, ImageDraw

from .delivery import ACKNOWLEDGED, MANIFEST, METADATA, PAGE, Delivery, write_manifest
from .files import digest, keep_only, put
from .mets import Page, write

TITLES = ("Morgenposten", "Aftenbladet", "Stiftstidende")
FIRST = 400022028241
WIDTH, HEIGHT = 96, 128
BACKGROUND, INK = 235, 40
Files = dict[str, bytes]


@dataclass(frozen=True)
class Content:
    """A delivery before it is written. `pages`: the metadata of each page, in their order."""

    batch: str
    pages: list[Page]
    files: Files

    @property
    def image(self) -> str:
        """The page that a defect damages: the second one, if there are two."""
        return self.pages[min(1, len(self.pages) - 1)].name

    @property
    def metadata(self) -> str:
        return self.image.removesuffix(PAGE) + METADATA


def _checksum(content: Content) -> None:
    """A bit flipped after the manifest was written."""
    body = bytearray(content.files[content.image])
    body[-20] ^= 1
    content.files[content.image] = bytes(body)


def _missing(content: Content) -> None:
    del content.files[content.image]


def _malformed(content: Content) -> None:
    _again(content, content.metadata, content.files[content.metadata][:-20])


def _truncated(content: Content) -> None:
    """The scanner stopped early: the manifest and the metadata agree with the truncated file."""
    body = content.files[content.image][:-60]
    _again(content, content.image, body)
    page = next(one for one in content.pages if one.name == content.image)
    _again(content, content.metadata, write(replace(page, checksum=digest(body), size=len(body))))


def _size(content: Content) -> None:
    page = next(one for one in content.pages if one.name == content.image)
    _again(content, content.metadata, write(replace(page, width=page.width + 1)))


def _again(content: Content, name: str, body: bytes) -> None:
    """Another file, with its right checksum in the manifest."""
    content.files[name] = body
    content.files[MANIFEST] = _manifest(content.files)


DEFECTS: dict[str, Callable[[Content], None]] = {
    "checksum": _checksum,
    "missing": _missing,
    "malformed": _malformed,
    "truncated": _truncated,
    "size": _size,
}
"""The first two fail in Structure_Checked, `truncated` in JPylyzed and Histogrammed, the others in Metadata_checked."""


def deliver(into: Path, item: str, pages: int = 4, defect: str | None = None) -> Path:
    """Deliver once. An acknowledged delivery stays as it is."""
    folder = into / item
    if not (folder / ACKNOWLEDGED).exists():
        _write(folder, pages, defect)
        put(folder / ACKNOWLEDGED, b"")
    return folder


def mend(folder: Path, pages: int = 4) -> None:
    """Repair a delivery: write it as it should have been."""
    _write(folder, pages, None)


def items(count: int, first: int = FIRST, round_trip: int = 1) -> list[str]:
    return [f"B{first + number}-RT{round_trip}" for number in range(count)]


def _write(folder: Path, pages: int, defect: str | None) -> None:
    content = _content(Delivery(folder).batch, pages)
    if defect:
        DEFECTS[defect](content)
    for name, body in content.files.items():
        put(folder / name, body)
    keep_only(folder, [*content.files, ACKNOWLEDGED])


def _content(batch: str, count: int) -> Content:
    dice, pages, files = random.Random(batch), list[Page](), Files()
    title, day = dice.choice(TITLES), dice.randrange(1, 28)
    for number in range(1, count + 1):
        body, name = _scan(dice), f"{batch}-{number:04}{PAGE}"
        date = f"1888-10-{day + (number > count // 2):02}"
        pages.append(Page(name, number, title, date, 1, WIDTH, HEIGHT, digest(body), len(body)))
        files |= {name: body, name.removesuffix(PAGE) + METADATA: write(pages[-1])}
    files[MANIFEST] = _manifest(files)
    return Content(batch, pages, files)


def _manifest(files: Files) -> bytes:
    return write_manifest({name: digest(body) for name, body in files.items() if name != MANIFEST})


def _scan(dice: random.Random) -> bytes:
    """A page in greys: a headline and lines of words, in two columns."""
    image = Image.new("L", (WIDTH, HEIGHT), BACKGROUND)
    draw = ImageDraw.Draw(image)
    draw.rectangle((8, 6, WIDTH - 8, 14), fill=INK)
    for left, top in ((left, top) for left in (8, WIDTH // 2 + 2) for top in range(20, HEIGHT - 6, 4)):
        for begin, end in _words(dice, left, left + WIDTH // 2 - 10):
            draw.line((begin, top, end, top), fill=INK + dice.randrange(30))
    body = BytesIO()
    image.save(body, "JPEG2000", irreversible=False)
    return body.getvalue()


def _words(dice: random.Random, left: int, right: int) -> Iterator[tuple[int, int]]:
    while left < right - 4:
        end = min(right, left + dice.randrange(3, 12))
        yield left, end
        left = end + 2


def _of(told: tuple[str, ...]) -> dict[int, str]:
    found = {}
    for one in told:
        number, _, kind = one.partition("=")
        if not number.isdecimal() or kind not in DEFECTS:
            raise click.BadParameter(f"{one!r} is not NUMBER=KIND, with KIND one of {', '.join(DEFECTS)}")
        found[int(number)] = kind
    return found


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--batches", default=20, show_default=True, type=click.IntRange(1), help="So many deliveries.")
@click.option("--pages", default=4, show_default=True, type=click.IntRange(1, 9999), help="Pages of each.")
@click.option("--first", default=FIRST, show_default=True, type=click.IntRange(0), help="The first batch's number.")
@click.option("--round-trip", default=1, show_default=True, type=click.IntRange(1), help="Deliver them as this one.")
@click.option("--defect", multiple=True, metavar="NUMBER=KIND", help=f"Damage one: {', '.join(DEFECTS)}.")
@click.option("--mend", "mended", is_flag=True, help="Take the defects out of what was delivered.")
def main(
    folder: Path, batches: int, pages: int, first: int, round_trip: int, defect: tuple[str, ...], mended: bool
) -> None:
    """Deliver batches of scanned pages into FOLDER."""
    wrong = _of(defect)
    for number, item in enumerate(items(batches, first, round_trip), 1):
        if mended:
            mend(folder / item, pages)
        click.echo(deliver(folder, item, pages, wrong.get(number)))


if __name__ == "__main__":
    main()
