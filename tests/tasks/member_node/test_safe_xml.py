"""A value is its whole text, whatever comments stand in it: in each document that strangers give us."""

from pathlib import Path

import pytest
from lxml import etree

from tasks.member_node.member import Member
from tasks.member_node.objects import read_listing, read_system_metadata
from tasks.member_node.safe_xml import Unreadable, parse
from tasks.nodelist.protocol import Dates
from tasks.nodelist.stores import Listed, State, Write
from tasks.nodelist.xml_format import parse_nodelist
from tasks.nodelist.xml_store import XmlStore
from tests.tasks.conftest import LATER, RIVER, SAMPLE, SAMPLES

LISTING = (
    '<d:objectList xmlns:d="http://ns.dataone.org/service/types/v1" count="1" start="0" total="1"><objectInfo>'
    "<identifier>doi:10.5/ab</identifier><formatId>text/csv</formatId><checksum algorithm='MD5'>c0ffee</checksum>"
    "<dateSysMetadataModified>2024-05-14T09:00:00Z</dateSysMetadataModified><size>1234</size></objectInfo>"
    "</d:objectList>"
)
METADATA = (
    '<d:systemMetadata xmlns:d="http://ns.dataone.org/service/types/v2.0"><serialVersion>12</serialVersion>'
    "<identifier>doi:10.5/ab</identifier><formatId>text/csv</formatId><size>1234</size>"
    "<checksum algorithm='MD5'>c0ffee</checksum><obsoletes>doi:10.5/aa</obsoletes>"
    "<obsoletedBy>doi:10.5/ac</obsoletedBy><archived>true</archived><dateSysMetadataModified>2024-05-14T09:00:00Z</dateSysMetadataModified>"
    "</d:systemMetadata>"
)
WITHIN = ["<!-- c -->", "<?app c?>", "<![CDATA[]]>", "<!-- --><?a b?><!-- -->"]


def broken(xml: bytes, within: str) -> bytes:
    """With this behind the first character of each text."""
    root = parse(xml)
    assert not [one for one in root.iter() if not isinstance(one.tag, str)]
    mark = "\ue000"
    for element in root.iter():
        if not len(element) and element.text:
            element.text = element.text[:1] + mark + element.text[1:]
    return etree.tostring(root, encoding="UTF-8").decode().replace(mark, within).encode()


@pytest.mark.parametrize("within", WITHIN)
def test_what_stands_in_a_value_does_not_cut_it_off(within: str) -> None:
    document = (SAMPLES / "nodelist_v2_sample.xml").read_bytes()
    assert parse_nodelist(broken(document, within)).members == SAMPLE
    described = broken(etree.tostring(RIVER.to_xml()), within)
    assert Member.from_xml(parse(described)) == RIVER
    listing = broken(LISTING.encode(), within)
    assert read_listing([listing[:200], listing[200:]]) == read_listing([LISTING.encode()])
    plain, metadata = METADATA.encode(), broken(METADATA.encode(), within)
    read = read_system_metadata(metadata, "doi:10.5/ab")
    assert read._replace(document=plain) == read_system_metadata(plain, "doi:10.5/ab")
    assert read.document == metadata
    with pytest.raises(Unreadable, match="of another object"):
        read_system_metadata(metadata, "d")


def test_a_value_with_elements_in_it_is_none() -> None:
    """A reader would take its first part for all of it."""
    within = "doi<b/>:10.5/ab"
    (entry,) = read_listing([LISTING.replace("doi:10.5/ab", within).encode()]).unreadable
    assert entry == ("", "objectInfo without identifier")
    with pytest.raises(Unreadable, match="without identifier"):
        read_system_metadata(METADATA.replace("<identifier>doi:10.5/ab", f"<identifier>{within}").encode(), "doi")
    document = (SAMPLES / "nodelist_v2_sample.xml").read_text()
    for value in (RIVER.identifier, RIVER.base_url, RIVER.subjects[0], RIVER.contact_subjects[0]):
        spoilt = parse_nodelist(document.replace(f">{value}<", f">{value[:5]}<b/>{value[5:]}<", 1).encode())
        assert (len(spoilt.members), len(spoilt.problems)) == (len(SAMPLE) - 1, 1), value


def test_a_document_that_is_written_again_keeps_its_comments_and_a_new_date_stands_alone(tmp_path: Path) -> None:
    document = broken((SAMPLES / "nodelist_v2_sample.xml").read_bytes(), "<!-- mine -->")
    (tmp_path / "nodelist.xml").write_bytes(document)
    store = XmlStore(tmp_path / "nodelist.xml")
    new = Listed(member=Dates(LATER, LATER).put_on(RIVER))
    state = store.read_one(RIVER.identifier)
    assert store.write({RIVER.identifier: Write(state, new)}) == {RIVER.identifier: State(new)}
    assert XmlStore(store.path).read_one(RIVER.identifier) == State(new)
    assert store.path.read_bytes().count(b"<!-- mine -->") == document.count(b"<!-- mine -->") - 2
