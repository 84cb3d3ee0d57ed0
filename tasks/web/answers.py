"""Answers in DataONE's XML, and errors as its clients know them."""

import re

from lxml import etree
from starlette.responses import Response

from tasks.member_node.member import NAMESPACES, Member
from tasks.nodelist.protocol import Dates
from tasks.nodelist.xml_format import serialized

XML = "text/xml"
_SECONDS, _PART = re.compile(r"[0-5]?\d"), re.compile(r"[?*\d/#,\-a-zA-Z]+")


class DataoneError(Exception):
    """A request that is not granted: the name of DataONE's error, and a sentence for people of the member."""

    def __init__(self, status: int, name: str, description: str, retry_after: int = 0) -> None:
        super().__init__(description)
        self.status, self.name, self.retry_after = status, name, retry_after

    def answer(self, node_id: str) -> Response:
        error = etree.Element("error", name=self.name, errorCode=str(self.status), detailCode="0", nodeId=node_id)
        etree.SubElement(error, "description").text = str(self)
        headers = {"Retry-After": str(self.retry_after)} if self.retry_after else {}
        return Response(serialized(error), self.status, headers, XML)


def valid(member: Member) -> Member:
    """The member as DataONE's schema can say it: one entry that breaks the rules would spoil the list for its readers.

    The dates stand beside a schedule, whose seconds are one number; somebody can always be asked.
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
    """The answer to a request for an object. Raises DataoneError for a pid that XML has no way to write."""
    element = etree.Element(f"{{{NAMESPACES['v1']}}}identifier", nsmap={"d1": NAMESPACES["v1"]})
    try:
        element.text = pid
    except ValueError as error:
        raise DataoneError(400, "InvalidRequest", "the federation has no such identifiers") from error
    return serialized(element)
