"""The codes of `why`: for each code a sentence, which is filled with a cause's facts, and the command that frees the
thing.

`docs/why.md` explains each code. A part of a sentence in [brackets] is left out where a fact in it is missing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from string import Formatter
from types import MappingProxyType

from coordinator.core.jobs.validation import shown_lane
from coordinator.core.store.times import moment, span_text
from coordinator.core.store.values import Json
from coordinator.core.verbs import Verb
from coordinator.ops.diagnosis.cause import Cause
from coordinator.ops.verbs import declared

MOST_NAMES = 20  # names that one fact lists at most

BEAT = "celery -A APP beat -S coordinator.scheduler.Scheduler"

_BY = "[ by {by}][ since {since:at}][: {why}]"
Row = tuple[str, str] | tuple[str, str, str]


class Codes(dict[str, Row]):
    """A table: code -> (sentence, remedy), or (sentence, remedy, detail). The name of the thing stands in front of the
    sentence, unless that begins with a capital letter or a fact; `{it}` is that name. The remedy that frees the thing
    is a verb followed by the facts that are its arguments, where one in brackets may be missing; or a shell command;
    "" = none. The detail is what few readers need.

    `said`: the rows. `verbs`: returns the verbs that an app adds to the coordinator's, by name.
    """

    def __init__(
        self,
        said: Mapping[str, Row],
        verbs: Callable[[], Mapping[str, Verb]] = lambda: MappingProxyType({}),
    ) -> None:
        super().__init__(said)
        self._verbs = verbs

    @cached_property
    def verbs(self) -> Mapping[str, Verb]:
        """The verbs of the coordinator and the app, by name. They are not read before the first cause is made, because
        the module of an app's verbs may import the module of the app's codes.
        """
        return {**declared.verbs(), **self._verbs()}


_SAID: Mapping[str, Row] = {
    # Causes of a job in line
    "waiting.lane": ("is {place:nth} in lane {key:lane}, behind {behind:names}", ""),
    "waiting.paused": ("is paused" + _BY + "[; it goes on by itself at {until:at}]", "resume key"),
    "waiting.quota": (
        "waits for {wants} of quota {name}[: {free} free][, {used} used by {users:names}]"
        "[; {ahead} ahead of it in the queue][, behind {head:names}]",
        "quota name concurrency=greater [rate] [burst]",
    ),
    "waiting.ready": (
        "waits until nodes have taken {ready:names} of the same task, which are ready for the free units of quota "
        "{name}",
        "",
    ),
    "waiting.rate": (
        "waits for the rate of quota {name}, {rate} (burst {burst})[, with {ahead} ahead of it in the queue]: it may "
        "start at {due:at} (in {left:span})",
        "",
    ),
    "waiting.cooldown": (
        "cools down[ until {due:at}][ (in {left:span})][, by {by}][ since {since:at}][: {why}]",
        "cool-down name",
    ),
    "waiting.next": ("is in front of its lanes and starts next", ""),
    # Causes of a job that is ready for a node
    "waiting.fleet": ("No node is alive: {it} {alone}", "celery -A APP worker"),
    "waiting.node": ("No living node may run {it}: {rejected:names}", ""),
    "waiting.slot": ("{it} {what} for a slot: none is free on {full:names}", ""),
    "waiting.claim": (
        "{it} {what} for node {node}, which has room for it[; the last runner there failed: {failure}]",
        "",
    ),
    "rejected.app": ("{count} of {nodes} nodes of another app than {lacks}: {who:names}", ""),
    "rejected.queue": (
        "{count} of {nodes} nodes without the queue {lacks}: {who:names}",
        "celery -A APP worker -Q {lacks:sh}",
    ),
    "rejected.label": (
        "{count} of {nodes} nodes without the label {lacks}: {who:names}",
        "COORDINATOR_LABELS={labels:sh} celery -A APP worker",
    ),
    "rejected.lost": ("was lost by nodes: {says:names}", ""),
    "rejected.task": ("{count} of {nodes} nodes without the task {lacks}: {who:names}", "retarget old=lacks"),
    "rejected.drains": ("{count} of {nodes} nodes draining: {who:names}", "undrain name=drained"),
    "rejected.full": ("{count} of {nodes} nodes without a free slot: {who:names}", ""),
    # Causes of a job at work
    "running.job": (
        "runs on node {node} for {for_:span}[, attempt {attempt}][, step {step} of {steps}]"
        "[, {done} of {total} done ({percent} %)]",
        "",
        "[pid {pid}, ][fence {fence}][, lease good for {lease:span}]",
    ),
    "running.rollback": (
        "is rolled back on node {node} for {for_:span}",
        "",
        "[pid {pid}, ][fence {fence}][, lease good for {lease:span}]",
    ),
    "running.stopping": ("is being stopped, to end as {ends}[, by {by}][: {why}]", ""),
    "running.orphan": (
        "has lost its node {node}, which is not alive: another takes it when its lease ends[, in {lease:span}]",
        "",
    ),
    "running.lock": (
        "is a lock in plain code, held for {for_:span}",
        "release key holder=id",
        "[fence {fence}][, lease good for {lease:span}]",
    ),
    "running.grab": (
        "is the grab of {instance} of {key} by {winner} ({place})[ since {since:at}]",
        "release-grab key instance attempt",
    ),
    # Causes of a job that is due later, is parked, held or over
    "later.scheduled": ("starts later[, at {due:at}][ (in {left:span})]", ""),
    "later.retry": (
        "failed in attempt {attempt}[ ({error})], and is tried again[ at {due:at}][ (in {left:span})]",
        "retry id",
    ),
    "later.sorter": ("is held by the sorter {sorter} until no more come[: {due:at}][ (in {left:span})]", ""),
    "later.flush": ("is among the orders that the sorter {sorter} is putting in line", ""),
    "later.collects": (
        "collects calls ({how})[ since {since:at}], {calls} so far[: it goes into line at {due:at}][ (in {left:span})]"
        "[, at the latest at {latest:at}]",
        "flush-job id",
    ),
    "blocked": (
        "is to run after others, {open} of {count} not over[: {behind:names}][; events not set: {events:names}]",
        "",
    ),
    "parked.event": (
        "is parked until the event {event} is set[, until {due:at} at the latest][ (in {left:span})]",
        "",
    ),
    "parked.results": ("{it} {what} until the end of {count:n sub-result}: {ids:names}", ""),
    "parked.begun": ("{it} {what}: its sub-task {child} was begun on node {node}", ""),
    "parked.unbegun": (
        "{it} {what}: {count:n other sub-task} not begun, or ended; a message that a lost node had fetched comes again "
        "after the broker's visibility_timeout (RabbitMQ: at once)",
        "",
    ),
    "parked.until": ("{it} {what}: its {limit} ends the wait at the latest[: {due:at}][ (in {left:span})]", ""),
    "held": ("failed[ {for_:span} ago][ ({error})] and waits for you to retry or cancel it", "retry id"),
    "held.cause": (
        "waits for you: it was to run after {failed:names}, without success. It goes on once that is retried and "
        "succeeds; retried itself, it runs without that",
        "retry id",
    ),
    "over": ("{it} {ended}[: {error}]", "retry id=again"),
    "damaged": ("has a damaged record: {fields:names}", ""),
    # Causes of an event
    "event.unset": ("is not set[; {count:n job} waiting for it]", "event-set name"),
    "event.set": ("was set {at:at}[ by {by}][; {count:n job} still to be told]", ""),
    # Causes of a lane
    "lane.free": ("is free: no job is in line", ""),
    "lane.held": ("is held by {holders:names}[; {length:n job} in line behind it]", ""),
    "lane.line": ("Nothing runs in {key:lane}: its first job is {behind:names}[, with {more:n job} behind it]", ""),
    "lane.collects": ("has {collector:names} collect its calls", ""),
    # Causes of a node
    "node.gone": ("is not alive[; living nodes: {living:names}]", "celery -A APP worker -n {name:sh}"),
    "node.lost": (
        "was killed or cut off {at:at}[ on {host}]; {held}[; living nodes: {living:names}]",
        "celery -A APP worker -n {name:sh}",
    ),
    "node.silent": ("has missed its heartbeats: others take over its jobs", ""),
    "node.drains": (
        "drains" + _BY + "[, since its worker {stops}]; it gets no new jobs",
        "undrain name=drained",
    ),
    "node.full": ("is full: {taken} of {capacity} slots busy[, {ordinary} of them with ordinary tasks]", ""),
    "node.busy": ("works: {taken} of {capacity} slots busy[, {ordinary} of them with ordinary tasks]", ""),
    "node.deaf": ("does not answer its wake-ups, and is woken last[; the last runner there failed: {failure}]", ""),
    "node.overloaded": ("is short of CPU or memory (load {load:.0%}, memory {memory:.0%}), and is woken late", ""),
    "node.lacks": ("is not for {count:n ready job}: it is {rejected} {lacks}", ""),
    "node.offered": ("is woken for {count:n ready job}", ""),
    "node.idle": ("has nothing to do: {taken} of {capacity} slots busy, and no job is ready for it", ""),
    # Causes of an entry of the schedule
    "entry.paused": ("is paused" + _BY, "entry-resume name"),
    "entry.omitted": ("leaves out {omitted:at}" + _BY, ""),
    "entry.beat": (
        "is sent by no beat: none has confirmed the source {source}[ for {silent:span}]",
        BEAT,
    ),
    "entry.unsent": ("has an instant, {instant:at}, that a beat took and has not sent: another does if it dies", ""),
    "entry.late": ("was due at {instant:at}, and no beat has sent that yet", ""),
    "entry.skipped": ("was skipped at {instant:at}, since the lane {key:lane} was busy", ""),
    "entry.failed": (
        "[fails at each tick since {since:at}][failed at {once:at}][: {error}]. {mend}; running it by hand fails, too",
        "",
    ),
    "entry.missed": ("was missed at {instant:at}: no beat sent it in time", ""),
    "entry.job": ("sent {instant:at}: its job {job} is {state}", ""),
    "entry.due": ("is due next at {due:at}[ (in {left:span})]", "entry-run name"),
    "entry.over": ("has no instant to come", ""),
}
CODES = Codes(_SAID)


def cause(code: str, thing: str, of: Sequence[str] = (), codes: Codes = CODES, /, **facts: Json) -> Cause:
    """Make the Cause of a code from facts. `of`: the things whose causes explain this cause; `codes`: the table that
    has the code, by default the coordinator's.
    """
    says, frees, *more = codes[code]
    facts = {"it": called(thing, str(facts.get("task") or "")), **facts}
    text, detail = _written(says if says[0].isupper() or says[0] == "{" else f"{{it}} {says}", facts), ""
    if more:
        detail = _written(more[0], facts).strip(", ")
    del facts["it"]
    act, *names = frees.split(" ")
    if act not in codes.verbs:
        return Cause(code, thing, text, facts, _written(frees, facts) or None, tuple(of), detail=detail)
    spare = {text.strip("[]") for text in names if text.startswith("[")}
    pairs = [(name, fact or name) for name, _, fact in (text.strip("[]").partition("=") for text in names)]
    known = {name: fact if fact.isdigit() else facts.get(fact) for name, fact in pairs}
    known = {name: value for name, value in known.items() if value is not None or name not in spare}
    if None in known.values():
        return Cause(code, thing, text, facts, None, tuple(of), detail=detail)
    values = {name: str(value) for name, value in known.items()}
    line = command(act, values, codes.verbs)
    return Cause(code, thing, text, facts, line, tuple(of), act, values, detail)


def called(thing: str, task: str = "") -> str:
    """Return what a sentence calls a thing: a job, node or entry by its name, others with their kind, such as `Lane a`.
    A job whose id somebody made up at random is called by its `task`, with the id behind it.
    """
    kind, _, name = thing.partition(" ")
    if kind in ("job", "node", "entry"):
        return f"{task} ({name})" if task and _RANDOM.fullmatch(name) else name
    name = shown_lane(name)
    return f"{kind.capitalize()} {name}" if kind in ("lane", "quota", "event", "label") else f"{kind} {name}"


def nth(place: int) -> str:
    """Write a place in a line: first, second … tenth, 11th, 21st."""
    if 0 < place <= len(_NTH):
        return _NTH[place - 1]
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{place}{'th' if place % 100 in (11, 12, 13) else ends.get(place % 10, 'th')}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def command(act: str, values: Mapping[str, Json], verbs: Mapping[str, Verb] | None = None) -> str:
    """Return the command line of the verb `act`, with `--why …` for a reason. `values`: the verb's arguments, by name.

    A name that begins with a dash is put behind `--`.
    """
    verb = (verbs or declared.verbs())[act]
    given = {own: str(values[name]) for own, name in verb.parameters.items() if name in values}
    line, things = verb.line(given, lambda value: shlex.quote(shown_lane(value)))
    dashed = any(value.startswith("-") for value in shlex.split(things))
    return f"coordinator {line} --why … -- {things}" if dashed else f"coordinator {line} {things} --why …"


def names(all_: Sequence[str]) -> list[Json]:
    """Return the first 20 of these names, as the value of a fact."""
    return [*all_[:MOST_NAMES]]


class _Words(Formatter):
    """Formats facts for people: `span` (seconds), `at` (an instant), `lane`, `sh` (quoted for a shell), `nth`, lists,
    `n job` (3 jobs).
    """

    def format_field(self, value: object, spec: str) -> str:
        if spec == "span":
            return span_text(float(str(value)))
        if spec == "at":
            return moment(datetime.fromisoformat(str(value)))
        if spec == "lane":
            return shown_lane(str(value))
        if spec == "nth":
            return nth(int(str(value)))
        if spec.startswith("n "):
            return counted(int(str(value)), spec[2:])
        if spec == "sh":
            return shlex.quote(shown_lane(str(value)))
        if spec == "names" and isinstance(value, list):
            return ", ".join(map(str, value)) + ", …" * (len(value) == MOST_NAMES)
        if spec == "counts" and isinstance(value, dict):
            return ", ".join(f"{number} {what}" for what, number in [*value.items()][:MOST_NAMES])
        return str(format(value, spec))


REJECTED = {
    "rejected.app": "not of the app",
    "rejected.queue": "without the queue",
    "rejected.label": "without the label",
    "rejected.task": "without the task",
    "rejected.drains": "draining",
    "rejected.full": "full",
}
_RANDOM = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NTH = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_words, _optional = _Words(), re.compile(r"\[([^\[\]]*)\]")


def _written(template: str, facts: Mapping[str, Json]) -> str:
    def part(found: re.Match[str]) -> str:
        needed = [name for _, name, _, _ in _words.parse(found[1]) if name]
        return found[1] if all(facts.get(name) not in (None, "", []) for name in needed) else ""

    return " ".join(_words.vformat(_optional.sub(part, template), (), facts).splitlines())
