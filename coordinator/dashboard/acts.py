"""What operators do on the pages: each act calls the function that the command line calls, too (client/acts.py)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import cast

from markupsafe import Markup, escape

from coordinator.client import acts
from coordinator.dashboard.extend import Act, Asked, Field
from coordinator.dashboard.show import job_link
from coordinator.errors import InvalidJob, UnknownJob
from coordinator.jobs.search import FILTERS, JobFilter
from coordinator.jobs.validation import shown_lane
from coordinator.lanes.bulk import LANE_VERBS, ON_STATES, ActingOn, Progress, Verb
from coordinator.lanes.plan import Hit, Plan

_SHOWN = 20  # things that a plan names
_WORDS = {
    "cancelled": "is cancelled",
    "stopping": "is fenced and stopped, and then cancelled",
    "rolling_back": "is rolled back",
    "ready": "becomes ready",
    "waiting": "joins its lines",
    "paused": "is paused",
    "open": "goes on",
}


def _number(name: str, least: int, most: int) -> Callable[[Asked], int | None]:
    """Reads a number that may be left empty."""
    return lambda asked: asked.number(name, 0, least, most) if asked.text(name) else None


def _arguments(asked: Asked) -> object:
    try:
        return json.loads(asked.text("args") or "[]")
    except ValueError as error:
        raise InvalidJob(f"the arguments are a JSON list: {error}") from error


PRIORITY = Field("priority", "Priority", hint="-255 to 255; empty: as it is", read=_number("priority", -255, 255))
LIMIT = Field("limit", "Jobs at once", default="1", hint="0 to 1000; 0 starts nothing",
              read=lambda asked: asked.number("limit", 1, 0, 1000))  # fmt: skip
ATTEMPT = Field("attempt", "Attempt", hint="only from the winner of this one; empty: from any",
                read=_number("attempt", 0, 10**9))  # fmt: skip
TO = Field("to", "Place", (("back", "last of its priority"), ("front", "first of its priority")), default="back")


def plan_of(act: Act, asked: Asked) -> list[str]:
    """What an act would do, in words."""
    return [*(act.plan(asked) if act.plan else [act.sentence(asked)])]


def _planned(call: Callable[[Asked], Plan]) -> Callable[[Asked], list[str]]:
    """How many things an act would hit, what becomes of the first of them, and what starts then."""

    def plan(asked: Asked) -> list[str]:
        found = call(asked)
        if not found.count:
            return ["Nothing would change."] if found.complete else ["Half a second was too short to find any."]
        kind = found.hits[0].thing.partition(" ")[0] if found.hits else "job"
        first = f"; the first {_SHOWN}:" if found.count > _SHOWN else ":"
        more = "" if found.complete else "+"
        lines = [f"{found.count:,}{more} {kind}s{first}"] if found.count > 1 or more else []
        lines += [_words(asked, found.act, hit) for hit in found.hits[:_SHOWN]]
        if found.count > _SHOWN:
            lines.append(f"and {found.count - _SHOWN:,}{more} more")
        starts = ", ".join(f"job {name}" for name in found.starts[:_SHOWN])
        rest = f" and {len(found.starts) - _SHOWN:,} more" if len(found.starts) > _SHOWN else ""
        ends = "starts" if len(found.starts) == 1 else "start"
        return [*lines, f"then {starts}{rest} {ends}" if starts else "nothing starts in return"]

    return plan


def _words(asked: Asked, act: str, hit: Hit) -> str:
    """`job X on n1 is fenced and stopped, and then cancelled`."""
    kind, _, name = hit.thing.partition(" ")
    if kind != "job" or hit.state != "running":
        becomes = _WORDS.get(hit.becomes, f"gets {act} {hit.becomes}" if kind == "lane" else f"becomes {hit.becomes}")
        return f"{kind} {shown_lane(name)}, {hit.state.replace('_', ' ')}, {becomes}"
    with suppress(UnknownJob):  # it is over
        if node := asked.coordinator.job(name).node:
            name = f"{name} on {node}"
    does = (
        "is fenced, loses the lane, and ends as cancelled" if act == "release" else _WORDS.get(hit.becomes, hit.becomes)
    )
    return f"job {name} {does}"


def filter_of(asked: Asked) -> JobFilter:
    """The filter of jobs in an address."""
    return cast(JobFilter, {name: value for name in FILTERS if (value := asked.text(name))})


def on_jobs(wanted: JobFilter) -> list[str]:
    """The acts on all jobs of a filter that can act on jobs of its state."""
    state = wanted.get("state")
    return [f"{verb}-all" for verb, states in ON_STATES.items() if wanted and (not state or state in states)]


def _on_all(verb: Verb, thing: str, fields: Sequence[Field] = ()) -> Act:
    """The act on all jobs that a filter finds, or on all lanes whose keys begin so."""
    on_lanes = verb in LANE_VERBS

    def wanted(asked: Asked) -> ActingOn:
        named = {"key": asked.text("key")} if on_lanes else filter_of(asked)
        return cast(ActingOn, {**named, **{field.name: field.value(asked) for field in fields}})

    def do(asked: Asked) -> Iterator[str | Progress]:
        done = 0
        for progress in asked.coordinator.act(verb, **cast(ActingOn, {**wanted(asked), **asked.acting()})):
            done = progress.done
            yield progress
        yield f"Done, on {done:,} {thing}{'s' * (done != 1)}."

    def plan(asked: Asked) -> Plan:
        return asked.coordinator.act(verb, dry_run=True, **wanted(asked))

    return Act(f"{verb.capitalize()} all of these", ("key",) if on_lanes else FILTERS,
               f"{verb.capitalize()} each {thing} that this finds: {{all}}", do, "/lanes" if on_lanes else "/jobs",
               _planned(plan), fields, grave=verb in ("cancel", "release"), needs=int(on_lanes))  # fmt: skip


def _act(
    do: Callable[..., acts.Done], title: str, thing: Sequence[str], does: str, back: str, fields: Sequence[Field] = (),
    plan: Callable[[Asked], Sequence[str]] | None = None, grave: bool = False,
) -> Act:  # fmt: skip
    """An act of `coordinator.client.acts`, which takes the values of its thing, then its fields."""

    def done(asked: Asked) -> Markup:
        values = (*map(asked.text, thing), *(field.value(asked) for field in fields))
        answer, text = do(asked.coordinator, *values, **asked.acting())
        job_id = str(answer.get("id", ""))
        before, found, behind = text.rpartition(job_id) if job_id else (text, "", "")
        return escape(before) + (job_link(job_id, found) if found else "") + escape(f"{behind}.")

    return Act(title, thing, does, done, back, plan, fields, grave)


def _retarget_plan(asked: Asked) -> list[str]:
    """Nothing before the new task is named."""
    old, new = asked.text("old"), asked.text("new")
    return _planned(lambda asked: asked.coordinator.retarget(old, new, dry_run=True))(asked) if new else []


ACTS: Mapping[str, Act] = {
    "cancel": _act(acts.cancel, "Cancel job", ["id"],
                   "Ends the job, and rolls it back where it has a rollback: job {id}", "/job",
                   plan=_planned(lambda asked: asked.coordinator.cancel(asked.text("id"), dry_run=True)), grave=True),
    "retry": _act(acts.retry, "Retry", ["id"], "Starts it again: job {id}", "/job", [TO],
                  _planned(lambda asked: asked.coordinator.retry(asked.text("id"), dry_run=True))),
    "cancel-all": _on_all("cancel", "job"),
    "retry-all": _on_all("retry", "job", [TO]),
    "move-all": _on_all("move", "job", [TO, PRIORITY]),
    "release-all": _on_all("release", "lane"),
    "pause-all": _on_all("pause", "lane"),
    "resume-all": _on_all("resume", "lane"),
    "limit-all": _on_all("limit", "lane", [LIMIT]),
    "move": _act(acts.move, "Move", ["id"], "Gives another place in its lines to job {id}", "/job", [TO, PRIORITY]),
    "release": _act(acts.release, "Release", ["key", "holder"], "Takes the lane from its holder, which ends as "
                    "cancelled, without rollback; the next job starts. Lane {key}", "/lane", plan=_planned(
                        lambda asked: asked.coordinator.release(
                            asked.text("key"), holder=asked.text("holder"), dry_run=True)), grave=True),
    "pause": _act(acts.pause, "Pause", ["key"], "Starts nothing more, until somebody resumes it. Lane {key}", "/lane"),
    "resume": _act(acts.resume, "Resume", ["key"], "Lets it go on: lane {key}", "/lane"),
    "limit": _act(acts.limit, "Limit", ["key"], "Lets so many jobs run at once in lane {key}", "/lane", [LIMIT]),
    "drain": _act(acts.drain, "Drain", ["name"], "Gives nothing new to it; its jobs end there. Node {name}", "/node"),
    "undrain": _act(acts.undrain, "Undrain", ["name"], "Gives work again to node {name}", "/node"),
    "entry-pause": _act(acts.pause_entry, "Pause", ["name"], "Sends no tick, until somebody resumes it. Entry {name}",
                        "/entry"),
    "entry-resume": _act(acts.resume_entry, "Resume", ["name"], "Sends ticks again: entry {name}", "/entry"),
    "entry-skip": _act(acts.skip_tick, "Skip the next", ["name"], "Leaves out the next instant of entry {name}",
                       "/entry"),
    "entry-run": _act(acts.run_entry, "Run now", ["name"], "Runs once, out of turn: entry {name}", "/entry"),
    "entry-change": _act(acts.change_entry, "Change", ["name"],
                         "Counts by another schedule until it is restored: entry {name}", "/entry",
                         [Field("schedule", "Schedule", hint="sec min hour mday mon wday: 0 */5 * * * ?")]),
    "entry-restore": _act(acts.restore_entry, "Restore", ["name"], "Has its own schedule again: entry {name}",
                         "/entry"),
    "flush": _act(acts.flush, "Flush", ["name"], "Puts its orders in line now: sorter {name}", "/sorters"),
    "sorter-add": _act(acts.add_order, "Add an order", ["name"], "Adds an order to sorter {name}", "/sorters", [
        Field("order", "Order", hint="its id, by which it is sorted"), Field("key", "Key"), Field("task", "Task"),
        Field("args", "Arguments", default="[]", hint="a JSON list", read=_arguments)]),
    "retarget": _act(acts.retarget, "Retarget", ["old"], "Gives another task to the jobs, not at work, of task {old}",
                     "/jobs", [Field("new", "New task")], _retarget_plan),
    "requeue": _act(acts.requeue, "Requeue", ["id"], "Puts it into its queue again: request {id}", "/refused", [
        Field("edited", "In its place", hint="this JSON; empty: the request as it was")]),
    "discard": _act(acts.discard, "Discard", ["id"], "Forgets the request {id}", "/refused", grave=True),
    "release-grab": _act(acts.release_grab, "Release", ["key", "instance"],
                         "Takes it from its winner: instance {instance}", "/grabs", [ATTEMPT], grave=True),
}  # fmt: skip
