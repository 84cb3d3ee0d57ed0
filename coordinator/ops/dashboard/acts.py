"""Makes the acts on the dashboard's pages from the declarations of verbs (coordinator/core/verbs.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from markupsafe import Markup, escape

from coordinator.core.jobs.validation import shown_lane
from coordinator.core.store.times import instant, moment
from coordinator.core.store.values import Json
from coordinator.core.verbs import LANE, Answer, Option, Verb
from coordinator.errors import InvalidJob, UnknownJob
from coordinator.ops.dashboard.extend import Query
from coordinator.ops.dashboard.show import job_link, timed, url
from coordinator.ops.search.filter import FILTERS, LISTS, JobFilter, pinned, states_in
from coordinator.ops.verbs.bulk import ON_STATES, ActingOn, BulkVerb, Progress
from coordinator.ops.verbs.plan import Hit, Plan, dependants_text

_NAMED = {"without": "but not {}", "ids": "among {}"}  # filters that read better in other words
_MOST_NAMED = 3  # ids that the name of an act lists
WHICH = {"ticked": "the ticked jobs", "others": "all of these but the ticked"}
_SHOWN = 20  # hits of a plan that a page lists
_WORDS = {
    "cancelled": "is cancelled",
    "stopping": "is fenced and stopped, and then cancelled",
    "rolling_back": "is rolled back",
    "ready": "becomes ready",
    "waiting": "joins its lines",
    "paused": "is paused",
    "open": "goes on",
    "cools down": "starts nothing for a while",
    "undeclared": "has no bounds",
}


@dataclass(frozen=True, slots=True)
class Act:
    """A verb as a form on a page, and as the route `/api/act/<name>`.

    `values`: names of the values that say on which thing to act, which the link to the form carries; the first `needs`
    of them are required. `thing`: returns the name of that thing. `given`: returns those values as the form sends them.
    `do`: acts; yields Progress if it takes long, and then a sentence about what happened. `plan`: returns what would
    change, one line for each thing. `back`: path of the page that is shown after the act. `options`: the fields of the
    form.
    """

    title: str
    values: Sequence[str]
    needs: int
    thing: Callable[[Query], str]
    given: Callable[[Query], Mapping[str, str]]
    help: str
    do: Callable[[Query], Iterable[str | Progress]]
    back: str
    plan: Callable[[Query], Sequence[str]] | None
    options: Sequence[Option]
    grave: bool

    def address(self, query: Query) -> str:
        """Return the address of the page that is shown after the act."""
        return url(self.back, **{name: query.text(name) for name in self.values})

    def planned(self, query: Query) -> list[str]:
        """Return what the act would do, as lines of text."""
        return [*(self.plan(query) if self.plan else [f"{self.thing(query)}. {self.help}"])]


def acts_of(verbs: Iterable[Verb]) -> dict[str, Act]:
    """Make the acts of these verbs, by name. For a verb on many things there is also an act such as `cancel-all`, on
    all things that a filter finds.
    """
    known = {verb.name: verb for verb in verbs}
    many = {f"{name}-all": _on_all(verb) for name, verb in known.items() if verb.many}
    return {name: _on_one(verb) for name, verb in known.items()} | many


def _on_one(verb: Verb) -> Act:
    names = (*verb.thing.names, *(option.name for option in verb.options if option.form == "hidden"))

    def do(query: Query) -> Iterator[Markup | Progress]:
        for step in verb.steps(query.coordinator, verb.given(query.text), query.acting()):
            yield step if isinstance(step, Progress) else _sentence(*cast(Answer, step))

    def plan(query: Query) -> list[str]:
        found = verb.plan(query.coordinator, verb.given(query.text)) if verb.plan else ()
        return plan_words(query, found) if isinstance(found, Plan) else [*found]

    def thing(query: Query) -> str:
        return " ".join([verb.thing.kind.capitalize(), *(shown_lane(query.text(name)) for name in verb.thing.names)])

    def given(query: Query) -> dict[str, str]:
        return {name: query.text(name) for name in names}

    return Act(
        verb.title, names, len(verb.thing.names), thing, given, verb.help, do, verb.thing.page,
        plan if verb.plan else None, _fields(verb), verb.grave,
    )  # fmt: skip


def _sentence(answer: Mapping[str, Json], text: str) -> Markup:
    """Return the sentence `text` about an act as HTML, with a link to the job whose id `answer` has."""
    job_id, text = str(answer.get("id", "")), ". ".join(text.splitlines())
    before, found, behind = text.rpartition(job_id) if job_id else (text, "", "")
    return timed(before) + (job_link(job_id, found) if found else "") + timed(f"{behind}.")


def _on_all(verb: Verb) -> Act:
    """Make the act of a verb on all jobs that a filter finds, or on all lanes whose keys have a prefix."""
    name, kind, on_lanes = cast(BulkVerb, verb.name), verb.thing.kind, verb.thing == LANE
    names, word, fields = verb.thing.names if on_lanes else FILTERS, verb.title.partition(" ")[0], _fields(verb)

    def wanted(query: Query) -> ActingOn:
        named = {"key": query.text("key")} if on_lanes else filter_of(query)
        return cast(ActingOn, {**named, **{field.name: field.read(query.text(field.name)) for field in fields}})

    def given(query: Query) -> dict[str, str]:
        if on_lanes:
            return {"key": query.text("key")}
        store = query.coordinator.store
        filters = pinned(store, filter_of(query), instant(store.clock().wall))
        return {name: "\n".join(value) if isinstance(value, list) else str(value) for name, value in filters.items()}

    def do(query: Query) -> Iterator[str | Progress]:
        done = total = 0
        for progress in query.coordinator.act(name, **cast(ActingOn, {**wanted(query), **query.acting()})):
            done, total = progress.done, progress.total
            yield progress
        of = f" of {total:,}" if total > done else ""
        others = "; the others had changed before" if total > done else ""
        yield f"Done, on {done:,}{of} {kind}{'s' * (total != 1)}{others}."

    def plan(query: Query) -> list[str]:
        return plan_words(query, query.coordinator.plan.act(name, **wanted(query)))

    def thing(query: Query) -> str:
        filters = {"key": query.text("key")} if on_lanes else filter_of(query)
        values = {name: _listed(value) for name, value in filters.items() if value}
        found = ", ".join(_NAMED.get(name, f"{name} {{}}").format(value) for name, value in values.items())
        return f"{word} each {kind} that this finds: {found or 'nothing is named'}"

    back = "/lanes" if on_lanes else "/jobs"
    now = " It changes the lanes that are there now; one that comes later stays as it is." if on_lanes else ""
    return Act(
        f"{word} all of these", names, int(on_lanes), thing, given, verb.help + now, do, back, plan, fields, verb.grave
    )


def _fields(verb: Verb) -> list[Option]:
    return [option for option in verb.options if option.form != "hidden"]


def plan_words(query: Query, found: Plan) -> list[str]:
    """Write a plan as lines of text: how many things would change, what becomes of the first 20, and what starts."""
    if not found.count:
        return ["Nothing would change."] if found.complete else ["Half a second was too short to find any."]
    kind = found.hits[0].thing.partition(" ")[0] if found.hits else "job"
    first = f"; the first {_SHOWN}:" if found.count > _SHOWN else ":"
    more = "" if found.complete else "+"
    lines: list[str] = []
    if found.count > 1 or more:
        lines = [f"{found.count:,}{more} {kind}s, as of {moment(found.as_of)}{first}"]
    lines += [_words(query, found.act, hit) for hit in found.hits[:_SHOWN]]
    if found.count > _SHOWN:
        lines.append(f"and {found.count - _SHOWN:,}{more} more")
    if said := dependants_text(found):
        lines.append(f"of the jobs that are to run after {'it' if found.count == 1 else 'these'}: {said}")
    starts = ", ".join(f"job {name}" for name in found.starts[:_SHOWN])
    rest = f" and {len(found.starts) - _SHOWN:,} more" if len(found.starts) > _SHOWN else ""
    ends = "starts" if len(found.starts) == 1 else "start"
    return [*lines, f"then {starts}{rest} {ends}" if starts else "nothing starts in return"]


def _words(query: Query, act: str, hit: Hit) -> Markup:
    """Describe what `act` does to the job or lane of `hit`: `job X on n1 is fenced and stopped, and then cancelled`."""
    kind, _, name = hit.thing.partition(" ")
    if kind != "job" or hit.state != "running":
        becomes = _WORDS.get(hit.becomes, f"becomes {hit.becomes}" if kind == "job" else f"gets {hit.becomes}")
        return Markup("{} {}, {}, {}").format(kind, _linked(kind, name), hit.state.replace("_", " "), becomes)
    where = ""
    with suppress(UnknownJob):  # the job has ended, and its record is gone
        if node := query.coordinator.job(name).node:
            where = f" on {node}"
    does = (
        "is fenced, loses the lane, and ends as cancelled" if act == "release" else _WORDS.get(hit.becomes, hit.becomes)
    )
    return Markup("job {}{} {}").format(job_link(name, name), where, does)


def _linked(kind: str, name: str) -> Markup:
    if kind == "job":
        return job_link(name, name)
    if kind == "lane":
        return Markup('<a href="{}">{}</a>').format(url("/lane", key=name), shown_lane(name))
    return escape(name)


def _listed(value: object) -> str:
    """Write the value of a filter: `failed or expired`, and of many values just their number."""
    if not isinstance(value, list):
        return shown_lane(str(value))
    return " or ".join(value) if len(value) <= _MOST_NAMED else f"{len(value):,} of them"


def filter_of(query: Query) -> JobFilter:
    """Return the job filter that the values of a request's URL or form have.

    `which`, from the list of jobs, says what its ticks (`ids`) mean: `ticked`, only these jobs; `others`, none of
    these. Raises InvalidJob.
    """
    given = {name: value for name in FILTERS if (value := query.text(name))}
    if which := query.text("which"):
        if which not in WHICH:
            raise InvalidJob(f"which is {' or '.join(WHICH)}, not {which:.40}")
        ticked = given.pop("ids", "")
        if not ticked and which == "ticked":
            raise InvalidJob("tick at least one job")
        given |= {"ids": ticked} if which == "ticked" else {"without": ticked} if ticked else {}
    return cast(JobFilter, {name: value.split("\n") if name in LISTS else value for name, value in given.items()})


def on_jobs(wanted: JobFilter) -> list[str]:
    """Return the names of the acts on all jobs of a filter (`cancel-all` …) that are possible in the filter's state."""
    states = set(states_in(wanted))
    return [f"{verb}-all" for verb, of_verb in ON_STATES.items() if wanted and states & {*of_verb}]
