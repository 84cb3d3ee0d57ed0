"""The pages of members: their condition, who keeps which version of the list, and what operators do with them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from coordinator import UnknownJob
from coordinator.dashboard.extend import Act, Asked, Field, Page, Pages, Tab
from coordinator.dashboard.show import url
from tasks import members as own
from tasks.app import coordinator
from tasks.nodelist.store_notes import lacking
from tasks.pages.plain import plainly, said
from tasks.schedules import lane_of
from tasks.service import service

ROWS = 50


def members(asked: Asked) -> Page:
    here = service()
    rows = own.conditions(here, asked.text("after"), ROWS + 1)
    kept, pending = here.nodelist.document.members(), lacking(here.nodelist.document)
    values = {
        "rows": rows[:ROWS],
        "more": rows[ROWS - 1].member if len(rows) > ROWS else "",
        "version": here.nodelist.document.read().version,
        "kept": kept,
        "store": here.nodelist.store.name,
        "pending": len(pending),
    }
    return Page("members.html", "Members", values)


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


def _back(asked: Asked) -> str:
    return url("/member", id=asked.text("id"))


def _act(title: str, does: str, do: Callable[..., own.Done], grave: bool = False) -> Act:
    def done(asked: Asked) -> str:
        ended = do(asked.text("id"), **said(asked))
        return ". ".join([*ended.lines, *([ended.remark] if ended.remark else [])]) + "."

    return Act(title, ("id",), lambda asked: f"{asked.text('id')} {does}", plainly(done), _back, grave=grave)


def _refresh(asked: Asked) -> str:
    complete = asked.text("what") == "complete"
    job_id = own.refresh(asked.text("id"), asked.text("pid") or None, complete=complete, **said(asked))
    return f"Asked for. The sync is job {job_id}, once a node has read the request."


REFRESH = Act(
    "Refresh",
    ("id",),
    lambda asked: f"{asked.text('id')} is harvested now",
    plainly(_refresh),
    _back,
    fields=(
        Field("what", "What", (("changes", "what has changed"), ("complete", "everything from its beginning"))),
        Field("pid", "Only this object", hint="its pid"),
    ),
)

ACTS = {
    "member-refresh": REFRESH,
    "member-accept": _act("Accept what it proposes", "has all that it proposes", own.accept),
    "member-refuse": _act("Refuse", "stays as it is in the list, until it proposes something else", own.refuse),
    "member-approve": _act("Approve", "is synchronized from now on", own.approve),
    "member-suspend": _act("Suspend", "stays in the list, and is not synchronized", own.suspend),
    "member-reset": _act("Reset", "is harvested from its beginning at its next sync", own.reset, grave=True),
    "member-remove": _act("Remove", "leaves the list, and its syncs are cancelled", own.remove, grave=True),
}


def pages() -> Pages:
    views = {"/members": plainly(members), "/member": plainly(member)}
    return Pages((Tab("Members", "/members", ("/member",)),), views, ACTS, Path(__file__).parent / "templates")
