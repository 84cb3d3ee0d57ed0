"""The pages of members: their condition, who keeps which version of the list, and what operators do with them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from markupsafe import Markup

from coordinator import UnknownJob
from coordinator.extending import Act, Asked, Field, Page, Pages, Reading, Tab, job_link, page_of
from tasks import members as own
from tasks.app import coordinator
from tasks.catalog.former import former
from tasks.documents.document import Document
from tasks.documents.replica_set import Keeper, OnDisk
from tasks.nodelist.store_notes import lacking
from tasks.nodelist.stores import Listed
from tasks.nodelist.xml_store import NodelistUnreadable
from tasks.schedules import lane_of
from tasks.service import service

ROWS = 50
KEEPERS = 30.0  # seconds between two questions to all who keep the list


def members(asked: Asked) -> Page:
    here, text = service(), asked.text("text").lower()
    document, listed, unreadable = here.nodelist.document, dict[str, Listed](), ""
    try:
        listed = here.nodelist.listed()
    except NodelistUnreadable as error:  # nobody gave one yet, or it is broken
        unreadable = str(error)
    names = [name for name in [*listed, *former(here.catalog, listed)] if text in name.lower()]
    after = asked.text("after")
    first = names.index(after) + 1 if after in names else 0
    shown, more = page_of(names[first : first + ROWS + 1], ROWS, str)
    kept, keepers = asked.keep("keepers", KEEPERS, lambda: _keepers(document))
    values = {
        "rows": own.conditions_of(shown, listed, here),
        "schedules": {name: _schedule(listed[name]) for name in shown if name in listed},
        "unreadable": unreadable,
        "count": len(names),
        "more": more,
        "version": document.read().version,
        "kept": kept,
        "keepers": keepers,
        "store": here.nodelist.store.name,
        "pending": len(lacking(document)),
    }
    return Page("members.html", "Members", values)


def _schedule(listed: Listed) -> str:
    return " ".join(listed.member.schedule.parts) if listed.member.schedule else "–"


def _keepers(document: Document) -> tuple[int, list[tuple[Keeper, OnDisk | None]]]:
    """The version of the list, then who keeps it, and what each has on its disk; None of one that does not answer
    within a second.
    """
    version, kept = document.read().version, document.replica_set
    keepers = kept.keepers()
    disks = kept.look({keeper.name for keeper in keepers if keeper.living}, 1.0)
    return version, [(keeper, disks.get(keeper.name)) for keeper in keepers]


def member(asked: Asked) -> Page:
    here, name = service(), asked.text("id")
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


def _conditions(asked: Asked) -> object:
    return own.conditions(service(), asked.text("after"), asked.number("most", 100, 1, 1000))


def _condition(asked: Asked) -> object:
    here, name = service(), asked.text("id")
    return own.condition(name, here.nodelist.listed().get(name), here)


def _act(title: str, does: str, do: Callable[..., own.ActReport], grave: bool = False) -> Act:
    def done(asked: Asked) -> str:
        ended = do(asked.text("id"), **asked.acting())
        return ". ".join([*ended.lines, *([ended.remark] if ended.remark else [])]) + "."

    return Act(title, ("id",), f"{{id}} {does}", done, "/member", grave=grave)


def _refresh(asked: Asked) -> str:
    complete = asked.text("what") == "complete"
    job_id = own.refresh(asked.text("id"), asked.text("pid") or None, complete=complete, **asked.acting())
    return Markup("Asked for. The sync is job {}, once a node has read the request.").format(job_link(job_id))


WHAT = Field("what", "What", (("changes", "what has changed"), ("complete", "everything from its beginning")))
PID = Field("pid", "Only this object", hint="its pid")
ACTS = {
    "member-refresh": Act("Refresh", ("id",), "{id} will be harvested now", _refresh, "/member", fields=(WHAT, PID)),
    "member-accept": _act("Accept what it proposes", "has all that it proposes", own.accept),
    "member-refuse": _act("Refuse", "stays as it is in the list, until it proposes something else", own.refuse),
    "member-approve": _act("Approve", "is synchronized from now on", own.approve),
    "member-suspend": _act("Suspend", "stays in the list, and is not synchronized", own.suspend),
    "member-reset": _act("Reset", "is harvested from its beginning at its next sync", own.reset, grave=True),
    "member-remove": _act("Remove", "leaves the list, and its syncs are cancelled", own.remove, grave=True),
}


def pages() -> Pages:
    views = {"/members": members, "/member": member}
    readings = {
        "members": Reading(list[own.Condition], _conditions, ("after", "most")),
        "member": Reading(own.Condition, _condition, ("id",)),
    }
    tabs = (Tab("Members", "/members", ("/member",)),)
    return Pages(tabs, views, ACTS, Path(__file__).parent / "templates", readings)
