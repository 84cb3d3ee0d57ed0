"""Parses XML from untrusted sources: refuses document type declarations, resolves no entity, and uses no network.

The parser drops comments and processing instructions, since lxml ends an element's text at the first of these.
"""

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import TypedDict

from lxml import etree


class Unreadable(ValueError):
    """The document is not XML, has a document type declaration, or lacks a required part."""


class Spoilt(Unreadable):
    """The document has a syntax error before its end; it is more than cut off."""


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
    """Parse a document, and return the root element. Raises Unreadable.

    `whole`: keep comments and processing instructions, for a document that is written again; read values by `bare`.
    """
    parser = etree.XMLParser(**(_OPTIONS | {"remove_comments": not whole, "remove_pis": not whole}))
    try:
        root = etree.fromstring(body, parser)
    except etree.XMLSyntaxError as error:
        raise Unreadable(f"not well-formed: {error}") from error
    _refuse_doctype(root)
    return root


def same(this: bytes, other: bytes) -> bool:
    """True if two documents differ in prefixes, the order of attributes, and blanks between elements at most."""
    texts = (etree.canonicalize(parse(body), strip_text=True, rewrite_prefixes=True) for body in (this, other))
    return len({*texts}) == 1


def stream(chunks: Iterable[bytes], *, root: Callable[[etree._Element], None], tag: str) -> Iterable[etree._Element]:
    """Parse a document from chunks: yield each element with this tag as soon as it is complete, then free its memory.

    `root`: called first, with the root element, before its content is parsed. Raises Unreadable, or Spoilt.
    """
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
    """A copy of the element without comments and processing instructions."""
    copied = deepcopy(element)
    etree.strip_tags(copied, etree.Comment, etree.ProcessingInstruction)
    return copied


def value(element: etree._Element, path: str = ".") -> str | None:
    """The text of the element at `path` (of XPath); None: there is no such element, or it contains elements."""
    child = element.find(path)
    return None if child is None or len(child) else child.text or ""


def text(element: etree._Element, path: str) -> str:
    """The text of the element at `path`, without blanks around it. Raises Unreadable where there is no text."""
    content = value(element, path)
    if not content or not content.strip():
        raise Unreadable(f"{local_name(element)} without {path}")
    return content.strip()


def _refuse_doctype(element: etree._Element) -> None:
    if element.getroottree().docinfo.internalDTD is not None:
        raise Unreadable("it has a document type declaration, which is refused")


def _forget(element: etree._Element) -> None:
    element.clear()
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]
