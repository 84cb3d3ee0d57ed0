"""Builds the answers of the members' HTTP API: DataONE's XML, and DataONE's error documents."""

import re

from lxml import etree
from starlette.responses import Response

from tasks.member_node.member import NAMESPACES, Member
from tasks.nodelist.protocol import Dates
from tasks.nodelist.xml_format import serialized

XML = "text/xml"
_SECONDS, _PART = re.compile(r"[0-5]?\d"), re.compile(r"[?*\d/#,\-a-zA-Z]+")


class DataoneError(Exception):
    """Refuses a request. `name`: DataONE's name of the error. `description`: a sentence for the member's operators.

    `retry_after`: seconds, for the header Retry-After; 0: no header.
    """

    def __init__(self, status: int, name: str, description: str, retry_after: int = 0) -> None:
        super().__init__(description)
        self.status, self.name, self.retry_after = status, name, retry_after

    def answer(self, node_id: str) -> Response:
        error = etree.Element("error", name=self.name, errorCode=str(self.status), detailCode="0", nodeId=node_id)
        etree.SubElement(error, "description").text = str(self)
        headers = {"Retry-After": str(self.retry_after)} if self.retry_after else {}
        return Response(serialized(error), self.status, headers, XML)


def valid(member: Member) -> Member:
    """A copy of the member that DataONE's schema allows, since one invalid entry would spoil the list for its readers.

    Without a schedule that the schema allows, the copy has neither schedule nor dates. It always has a contact.
    """
    if (
        not (times := member.schedule)
        or not _SECONDS.fullmatch(times.sec)
        or not all(map(_PART.fullmatch, times.parts))
    ):
        member = Dates().put_on(member.model_copy(update={"schedule": None}))
    contacts = member.contact_subjects or member.subjects or (member.identifier,)
    return member.model_copy(update={"contact_subjects": contacts})


def identifier(pid: str) -> bytes:
    """The XML that answers a request to sync an object. Raises DataoneError for a pid that XML cannot represent."""
    element = etree.Element(f"{{{NAMESPACES['v1']}}}identifier", nsmap={"d1": NAMESPACES["v1"]})
    try:
        element.text = pid
    except ValueError as error:
        raise DataoneError(400, "InvalidRequest", "the federation has no such identifiers") from error
    return serialized(element)
