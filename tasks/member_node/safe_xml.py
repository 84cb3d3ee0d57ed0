"""XML from strangers: the parser refuses a document type, resolves no entity and uses no network.

It drops comments and processing instructions, which would cut off the value that they stand in.
"""

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import TypedDict

from lxml import etree


class Unreadable(ValueError):
    """A document is not XML, carries a document type declaration, or lacks a necessary part."""


class Spoilt(Unreadable):
    """A document that is not well-formed in its midst. One that ends too early is another thing."""


class _Options(TypedDict):
    resolve_entities: bool
    no_network: bool
    load_dtd: bool
    huge_tree: bool
    remove_comments: bool
    remove_pis: bool


_OPTIONS: _Options = {
    "resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False,
    "remove_comments": True, "remove_pis": True,
}  # fmt: skip


def parse(body: bytes, *, whole: bool = False) -> etree._Element:
    """The root element. `whole`: with its comments, to be written again; read a `bare` copy. Raises Unreadable."""
    parser = etree.XMLParser(**(_OPTIONS | {"remove_comments": not whole, "remove_pis": not whole}))
    try:
        root = etree.fromstring(body, parser)
    except etree.XMLSyntaxError as error:
        raise Unreadable(f"not well-formed: {error}") from error
    _refuse_doctype(root)
    return root


def stream(chunks: Iterable[bytes], *, root: Callable[[etree._Element], None], tag: str) -> Iterable[etree._Element]:
    """Yield each element named `tag` as it arrives, and free it before the next. `root` sees the root first."""
    parser = etree.XMLPullParser(events=("start", "end"), **_OPTIONS)
    opened, spoilt = False, None
    try:
        for chunk in chunks:
            try:
                parser.feed(chunk)
            except etree.XMLSyntaxError as error:
                spoilt = Spoilt(f"not well-formed: {error}")
            for event, element in parser.read_events():
                if not opened:
                    _refuse_doctype(element)
                    root(element)
                    opened = True
                elif event == "end" and element.tag == tag:
                    yield element
                    _forget(element)
            if spoilt:
                raise spoilt
        parser.close()
    except etree.XMLSyntaxError as error:
        raise Unreadable(f"not well-formed: {error}") from error


def local_name(element: etree._Element) -> str:
    return etree.QName(element).localname


def bare(element: etree._Element) -> etree._Element:
    """A copy without comments and processing instructions."""
    copied = deepcopy(element)
    etree.strip_tags(copied, etree.Comment, etree.ProcessingInstruction)
    return copied


def value(element: etree._Element, path: str = ".") -> str | None:
    """The text at `path`. None where nothing is there, or elements stand in it, which are no part of any text."""
    found = element.find(path)
    return None if found is None or len(found) else found.text or ""


def text(element: etree._Element, path: str) -> str:
    """The text at `path`. Raises Unreadable where there is none."""
    content = value(element, path)
    if not content or not content.strip():
        raise Unreadable(f"{local_name(element)} without {path}")
    return content.strip()


def _refuse_doctype(element: etree._Element) -> None:
    if element.getroottree().docinfo.internalDTD is not None:
        raise Unreadable("it carries a document type declaration, which is refused")


def _forget(element: etree._Element) -> None:
    element.clear()
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]
