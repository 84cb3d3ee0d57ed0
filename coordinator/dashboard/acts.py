"""What operators do on the pages: each act calls the function of the coordinator that the command line calls, too."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import cast

from markupsafe import Markup

from coordinator.author import Acting
from coordinator.dashboard.extend import Act, Asked, Field
from coordinator.dashboard.show import job_link, url
from coordinator.errors import InvalidJob, UnknownJob
from coordinator.jobs.instances import shown_lane
from coordinator.jobs.search import FILTERS, JobFilter
from coordinator.jobs.states import End
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
PRIORITY = Field("priority", "Priority", hint="-255 to 255; empty: as it is")
LIMIT = Field("limit", "Jobs at once", default="1", hint="0 to 1000; 0 starts nothing")
TO = Field("to", "Place", (("back", "last of its priority"), ("front", "first of its priority")))


def check_reason(asked: Asked) -> None:
    """Raise InvalidJob where no reason is given."""
    if not asked.text("why"):
        raise InvalidJob("say why: others will read it")


def _of(name: str, verb: str) -> Callable[[Asked], str]:
    return lambda asked: f"{verb} {shown_lane(asked.text(name))}"


def _back(path: str, name: str) -> Callable[[Asked], str]:
    return lambda asked: url(path, **{name: asked.text(name)})


def _acting(asked: Asked) -> Acting:
    return Acting(why=asked.text("why"), ticket=asked.text("ticket"))


def _cancel(asked: Asked) -> str:
    state = asked.coordinator.cancel(asked.text("id"), **_acting(asked))
    return f"The job is {state}." if state != "running" else "The job is being stopped."


def _retry(asked: Asked) -> str:
    state = asked.coordinator.retry(asked.text("id"), to=cast(End, asked.text("to", "back")), **_acting(asked))
    return f"The job is {state}."


def plan_of(act: Act, asked: Asked) -> list[str]:
    """What an act would do, in words."""
    return [*(act.plan(asked) if act.plan else [act.does(asked)])]


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
        how: ActingOn = {"key": asked.text("key")} if on_lanes else cast(ActingOn, filter_of(asked))
        if "to" in (names := {field.name for field in fields}):
            how["to"] = cast(End, asked.text("to", "back"))
        if "priority" in names and asked.text("priority"):
            how["priority"] = asked.number("priority", 0, -255, 255)
        if "limit" in names:
            how["limit"] = asked.number("limit", 1, 0, 1000)
        return how

    def do(asked: Asked) -> Iterator[str | Progress]:
        done = 0
        on = cast(ActingOn, {**wanted(asked), **_acting(asked)})
        for progress in asked.coordinator.act(verb, **on):
            done = progress.done
            yield progress
        yield f"Done, on {done:,} {thing}{'s' * (done != 1)}."

    def does(asked: Asked) -> str:
        named = f"key {asked.text('key')}" if on_lanes else ", ".join(f"{k} {v}" for k, v in filter_of(asked).items())
        return f"{verb.capitalize()} each {thing} that this finds: {named or 'nothing is named'}"

    def plan(asked: Asked) -> Plan:
        return asked.coordinator.act(verb, dry_run=True, **wanted(asked))

    def back(asked: Asked) -> str:
        if on_lanes:
            return url("/lanes", prefix=asked.text("key").removesuffix("*"))
        return url("/jobs", **{name: str(value) for name, value in filter_of(asked).items()})

    return Act(f"{verb.capitalize()} all of these", ("key",) if on_lanes else FILTERS, does, do, back, _planned(plan),
               fields, grave=verb in ("cancel", "release"), needs=int(on_lanes))  # fmt: skip


def _move(asked: Asked) -> str:
    priority = asked.number("priority", 0, -255, 255) if asked.text("priority") else None
    to = cast(End, asked.text("to", "back"))
    state = asked.coordinator.move(asked.text("id"), priority=priority, to=to, **_acting(asked))
    return f"The job has its new place; it is {state}."


def _release(asked: Asked) -> str:
    job = asked.coordinator.release(asked.text("key"), holder=asked.text("holder"), **_acting(asked))
    return f"Job {job} lost the lane, and is cancelled." if job else "No job held the lane."


def _release_plan(asked: Asked) -> Plan:
    return asked.coordinator.release(asked.text("key"), holder=asked.text("holder"), dry_run=True)


def _limit(asked: Asked) -> str:
    before = asked.coordinator.set_limit(asked.text("key"), asked.number("limit", 1, 0, 1000), **_acting(asked))
    return f"The limit is {asked.text('limit')}; it was {before}."


def _skip(asked: Asked) -> str:
    return (
        f"The instant {asked.coordinator.entries.skip_next(asked.text('name'), **_acting(asked)):%F %T %Z} is left out."
    )


def _run(asked: Asked) -> str:
    job = asked.coordinator.entries.run_now(asked.text("name"), **_acting(asked))
    return Markup("A beat runs it within a second or two, as {}.").format(job_link(job))


def _release_grab(asked: Asked) -> str:
    attempt = asked.number("attempt", 0, 0, 10**9) or None
    winner = asked.coordinator.release_grab(asked.text("key"), asked.text("instance"), attempt, **_acting(asked))
    return f"It was taken from {winner}." if winner else "Nobody works on it."


def _flush(asked: Asked) -> str:
    return f"Orders put in line: {asked.coordinator.sorter(asked.text('name')).flush(**_acting(asked))}."


def _add_order(asked: Asked) -> str:
    """An order whose arguments are JSON. Raises InvalidJob."""
    try:
        args = json.loads(asked.text("args") or "[]")
    except ValueError as error:
        raise InvalidJob(f"the arguments are a JSON list: {error}") from error
    signature = {"task": asked.text("task"), "args": args, "kwargs": {}, "options": {}}
    sorter = asked.coordinator.sorter(asked.text("name"))
    added = sorter.add(asked.text("order"), asked.text("key"), signature, **_acting(asked))
    return f"The sorter holds it as job {added.id}."


def _retarget(asked: Asked) -> str:
    done = asked.coordinator.retarget(asked.text("old"), asked.text("new"), **_acting(asked))
    left = f" {done.at_work} at work stay as they are: do it again later." if done.at_work else ""
    return f"Jobs with the new task: {done.jobs:,}.{left}"


def _retarget_plan(asked: Asked) -> list[str]:
    """Nothing before the new task is named."""
    old, new = asked.text("old"), asked.text("new")
    return _planned(lambda asked: asked.coordinator.retarget(old, new, dry_run=True))(asked) if new else []


def _requeue(asked: Asked) -> str:
    done = asked.coordinator.requeue(asked.text("id"), asked.text("edited") or None, **_acting(asked))
    return "The request is in its queue again." if done else "It is there no more."


def _refused(_: Asked) -> str:
    return url("/refused")


def _steer(call: str, name: str, done: str, nothing: str) -> Callable[[Asked], str]:
    """An act on the thing of this name, which says whether it changed anything."""

    def do(asked: Asked) -> str:
        changed = attrgetter(call)(asked.coordinator)(asked.text(name), **_acting(asked))
        return done if changed else nothing

    return do


def _change(asked: Asked) -> str:
    changed = asked.coordinator.entries.change(asked.text("name"), asked.text("schedule"), **_acting(asked))
    return "The entry has its new schedule." if changed else "It has this schedule already."


_JOB, _LANE, _NODE, _ENTRY = _back("/job", "id"), _back("/lane", "key"), _back("/node", "name"), _back("/entry", "name")

ACTS: Mapping[str, Act] = {
    "cancel": Act("Cancel job", ["id"], _of("id", "Ends the job, and rolls it back where it has a rollback: job"),
                  _cancel, _JOB, _planned(lambda asked: asked.coordinator.cancel(asked.text("id"), dry_run=True)),
                  grave=True),
    "retry": Act("Retry", ["id"], _of("id", "Starts it again: job"), _retry, _JOB,
                 _planned(lambda asked: asked.coordinator.retry(asked.text("id"), dry_run=True)), [TO]),
    "cancel-all": _on_all("cancel", "job"),
    "retry-all": _on_all("retry", "job", [TO]),
    "move-all": _on_all("move", "job", [TO, PRIORITY]),
    "release-all": _on_all("release", "lane"),
    "pause-all": _on_all("pause", "lane"),
    "resume-all": _on_all("resume", "lane"),
    "limit-all": _on_all("limit", "lane", [LIMIT]),
    "move": Act("Move", ["id"], _of("id", "Gives another place in its lines to job"), _move, _JOB,
                fields=[TO, PRIORITY]),
    "release": Act("Release", ["key", "holder"], _of("key", "Takes the lane from its holder, which ends as cancelled, "
                   "without rollback; the next job starts. Lane"), _release, _LANE, _planned(_release_plan),
                   grave=True),
    "pause": Act("Pause", ["key"], _of("key", "Starts nothing more, until somebody resumes it. Lane"),
                 _steer("pause", "key", "The lane is paused.", "It was paused already; now your reason stands there."),
                 _LANE),
    "resume": Act("Resume", ["key"], _of("key", "Lets it go on: lane"),
                  _steer("resume", "key", "The lane goes on.", "It was not paused."), _LANE),
    "limit": Act("Limit", ["key"], _of("key", "Lets so many jobs run at once in lane"), _limit, _LANE,
                 fields=[LIMIT]),
    "drain": Act("Drain", ["name"], _of("name", "Gives nothing new to it; its jobs end there. Node"),
                 _steer("drain", "name", "The node drains.", "It drained already."), _NODE),
    "undrain": Act("Undrain", ["name"], _of("name", "Gives work again to node"),
                   _steer("undrain", "name", "The node has work again.", "It did not drain."), _NODE),
    "entry-pause": Act("Pause", ["name"], _of("name", "Sends no tick, until somebody resumes it. Entry"),
                       _steer("entries.pause", "name", "The entry is paused.", "It is paused already."), _ENTRY),
    "entry-resume": Act("Resume", ["name"], _of("name", "Sends ticks again: entry"),
                        _steer("entries.resume", "name", "The entry goes on.", "It was not paused."), _ENTRY),
    "entry-skip": Act("Skip the next", ["name"], _of("name", "Leaves out the next instant of entry"), _skip, _ENTRY),
    "entry-run": Act("Run now", ["name"], _of("name", "Runs once, out of turn: entry"), _run, _ENTRY),
    "entry-change": Act("Change", ["name"], _of("name", "Counts by another schedule until it is restored: entry"),
                        _change, _ENTRY,
                        fields=[Field("schedule", "Schedule", hint="sec min hour mday mon wday: 0 */5 * * * ?")]),
    "entry-restore": Act("Restore", ["name"], _of("name", "Has its own schedule again: entry"),
                         _steer("entries.restore", "name", "The entry has its own schedule.", "It has it already."),
                         _ENTRY),
    "flush": Act("Flush", ["name"], _of("name", "Puts its orders in line now: sorter"), _flush,
                 lambda _: url("/sorters")),
    "sorter-add": Act("Add an order", ["name"], _of("name", "Adds an order to sorter"), _add_order,
                      lambda _: url("/sorters"), fields=[
                          Field("order", "Order", hint="its id, by which it is sorted"), Field("key", "Key"),
                          Field("task", "Task"), Field("args", "Arguments", default="[]", hint="a JSON list")]),
    "retarget": Act("Retarget", ["old"], _of("old", "Gives another task to the jobs, not at work, of task"), _retarget,
                    lambda _: url("/jobs"), _retarget_plan, [Field("new", "New task")]),
    "requeue": Act("Requeue", ["id"], _of("id", "Puts it into its queue again: request"), _requeue, _refused,
                   fields=[Field("edited", "In its place", hint="this JSON; empty: the request as it was")]),
    "discard": Act("Discard", ["id"], _of("id", "Forgets the request"),
                   _steer("discard", "id", "It is forgotten.", "It was gone already."), _refused, grave=True),
    "release-grab": Act("Release", ["key", "instance", "attempt"],
                        _of("instance", "Takes it from its winner: instance"),
                        _release_grab, _back("/grabs", "key"), grave=True),
}  # fmt: skip
