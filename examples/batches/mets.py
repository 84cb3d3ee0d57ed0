"""The metadata of a page: a small METS with MODS (which page it is) and MIX (how large its image is)."""

from dataclasses import dataclass

from lxml import etree
from lxml.builder import ElementMaker

from tasks.member_node.safe_xml import Unreadable, parse

METS, MODS, MIX, XLINK = (
    "http://www.loc.gov/METS/",
    "http://www.loc.gov/mods/v3",
    "http://www.loc.gov/mix/v20",
    "http://www.w3.org/1999/xlink",
)
_NAMES = {"mets": METS, "mods": MODS, "mix": MIX, "xlink": XLINK}
_METS, _MODS, _MIX = (ElementMaker(namespace=one, nsmap=_NAMES) for one in (METS, MODS, MIX))


@dataclass(frozen=True)
class Page:
    """`name`: of the image's file. `checksum`: its SHA-256. `date`: of the edition, as in 1888-10-01."""

    name: str
    number: int
    title: str
    date: str
    edition: int
    width: int
    height: int
    checksum: str
    size: int


def write(page: Page) -> bytes:
    mods = _MODS.mods(
        _MODS.titleInfo(_MODS.title(page.title)),
        _MODS.originInfo(_MODS.dateIssued(page.date), _MODS.edition(str(page.edition))),
        _MODS.part(_MODS.detail(_MODS.number(str(page.number)), type="page")),
    )
    size = _MIX.BasicImageCharacteristics(_MIX.imageWidth(str(page.width)), _MIX.imageHeight(str(page.height)))
    mix = _MIX.mix(_MIX.BasicImageInformation(size))
    place = _METS.FLocat({f"{{{XLINK}}}href": page.name}, LOCTYPE="URL")
    told = {"ID": "IMG", "CHECKSUMTYPE": "SHA-256", "CHECKSUM": page.checksum, "SIZE": str(page.size)}
    root = _METS.mets(
        _METS.dmdSec(_METS.mdWrap(_METS.xmlData(mods), MDTYPE="MODS"), ID="MODS"),
        _METS.amdSec(_METS.techMD(_METS.mdWrap(_METS.xmlData(mix), MDTYPE="NISOIMG"), ID="MIX")),
        _METS.fileSec(_METS.fileGrp(_METS.file(place, told, MIMETYPE="image/jp2"))),
        _METS.structMap(_METS.div(_METS.fptr(FILEID="IMG"), TYPE="PAGE", DMDID="MODS", ADMID="MIX")),
        OBJID=page.name,
    )
    return etree.tostring(root, xml_declaration=True, encoding="UTF-8", pretty_print=True)


def read(body: bytes) -> Page:
    """Raises Unreadable."""
    root = parse(body)
    if root.tag != f"{{{METS}}}mets":
        raise Unreadable(f"the root is {root.tag!r}, not METS")
    return Page(
        name=_one(root, "//mets:FLocat/@xlink:href"),
        number=_whole(root, "//mods:detail[@type='page']/mods:number/text()"),
        title=_one(root, "//mods:titleInfo/mods:title/text()"),
        date=_one(root, "//mods:dateIssued/text()"),
        edition=_whole(root, "//mods:edition/text()"),
        width=_whole(root, "//mix:imageWidth/text()"),
        height=_whole(root, "//mix:imageHeight/text()"),
        checksum=_one(root, "//mets:file[@CHECKSUMTYPE='SHA-256']/@CHECKSUM"),
        size=_whole(root, "//mets:file/@SIZE"),
    )


def _one(root: etree._Element, path: str) -> str:
    found = root.xpath(path, namespaces=_NAMES)
    if not isinstance(found, list) or len(found) != 1 or not isinstance(found[0], str):
        raise Unreadable(f"not exactly one {path}")
    return found[0].strip()


def _whole(root: etree._Element, path: str) -> int:
    text = _one(root, path)
    if not text.isascii() or not text.isdigit():
        raise Unreadable(f"{path} is no number: {text[:40]!r}")
    return int(text)
