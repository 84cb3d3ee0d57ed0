"""The pages of members: their condition, who keeps which version of the list, and what operators do with them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from coordinator import UnknownJob
from coordinator.extending import Hit, Page, Pages, Query, Tab, page_of, readings_in, verbs_in
from tasks import members as own
from tasks.app import coordinator
from tasks.catalog.former import former
from tasks.documents.document import Document
from tasks.documents.replica_set import OnDisk, ReplicaStatus
from tasks.nodelist.store_notes import pending_members
from tasks.nodelist.stores import Listed
from tasks.nodelist.xml_store import NodelistUnreadable
from tasks.schedules import lane_of
from tasks.service import service

ROWS = 50
_FOUND = 8  # members that a search finds at most
_URN = "urn:node:"
REPLICAS = 30.0  # seconds between two questions to all who keep the list


def members(query: Query) -> Page:
    here, text = service(), query.text("text").lower()
    document, listed, unreadable = here.nodelist.document, dict[str, Listed](), ""
    try:
        listed = here.nodelist.listed()
    except NodelistUnreadable as error:  # nobody gave one yet, or it is broken
        unreadable = str(error)
    names = [name for name in [*listed, *former(here.catalog, listed)] if text in name.lower()]
    after = query.text("after")
    first = names.index(after) + 1 if after in names else 0
    shown, more = page_of(names[first : first + ROWS + 1], ROWS, str)
    kept, replicas = query.keep("replicas", REPLICAS, lambda: _replicas(document))
    values = {
        "rows": own.conditions_of(shown, listed, here),
        "schedules": {name: _schedule(listed[name]) for name in shown if name in listed},
        "unreadable": unreadable,
        "count": len(names),
        "more": more,
        "version": document.read().version,
        "kept": kept,
        "replicas": replicas,
        "store": here.nodelist.store.name,
        "pending": len(pending_members(document)),
    }
    return Page("members.html", "Members", values)


def _schedule(listed: Listed) -> str:
    return " ".join(listed.member.schedule.parts) if listed.member.schedule else "–"


def _replicas(document: Document) -> tuple[int, list[tuple[ReplicaStatus, OnDisk | None]]]:
    """The version of the list, then who keeps it, and what each has on its disk; None of one that does not answer
    within a second.
    """
    version, kept = document.read().version, document.replica_set
    replicas = kept.replicas()
    disks = kept.check_disks({replica.name for replica in replicas if replica.living}, 1.0)
    return version, [(replica, disks.get(replica.name)) for replica in replicas]


def member(query: Query) -> Page:
    here, name = service(), query.text("id")
    listed = here.nodelist.listed().get(name)
    why = own.why(name)
    lane = coordinator.lane(lane_of(name), 1)
    job = None
    if lane.jobs:
        with suppress(UnknownJob):  # it is over
            job = coordinator.job(lane.jobs[0])
    values = {
        "member": own.condition(name, listed, here),
        "described": listed and listed.member,
        "why": why,
        "job": job,
        "lane": lane.key,
        "failures": here.catalog.failed(name, 50),
    }
    return Page("member.html", f"Member {name}", values)


def _find(query: Query, wanted: str) -> list[Hit]:
    """Find members by their identifier, or by one that begins so, with or without `urn:node:`."""
    names, begin = sorted(service().nodelist.listed()), wanted.removeprefix(_URN).casefold()
    found = [name for name in names if name.removeprefix(_URN).casefold().startswith(begin)]
    return [Hit("member", name, "/member", {"id": name}) for name in found[:_FOUND]]


def pages() -> Pages:
    views = {"/members": members, "/member": member}
    tabs = (Tab("Members", "/members", ("/member",)),)
    folder = Path(__file__).parent / "templates"
    return Pages(tabs, views, folder, verbs_in(own.acts).values(), readings_in(own.readings).values(), (_find,))
