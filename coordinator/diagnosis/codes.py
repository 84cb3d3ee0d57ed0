"""The codes of `why`: what each says of a thing, made of its facts, and the command that frees the thing.

`docs/why.md` explains each. Where a fact is missing, the part in brackets that names it is left out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from string import Formatter
from types import MappingProxyType
from typing import TypeAlias

from coordinator.diagnosis.cause import Cause
from coordinator.jobs.validation import shown_lane
from coordinator.store.times import moment, span_text
from coordinator.store.values import Json

MOST_NAMES = 20  # names in one fact

BEAT = "celery -A APP beat -S coordinator.scheduler.Scheduler"

_BY = "[, by {by}][ since {since:at}][: {why}]"

Commands: TypeAlias = Mapping[str, tuple[str, str]]
"""The command of each act, behind `coordinator`, and what it acts on. The dashboard has acts of these names."""

COMMANDS: Commands = {
    "cancel": ("cancel", "{id:sh}"),
    "retry": ("retry", "{id:sh}"),
    "move": ("move --to {to}", "{id:sh}"),
    "pause": ("pause", "{key:sh}"),
    "resume": ("resume", "{key:sh}"),
    "limit": ("limit", "{key:sh} {limit}"),
    "release": ("release --holder {holder:sh}", "{key:sh}"),
    "release-grab": ("grabs release --attempt {attempt}", "{key:sh} {instance:sh}"),
    "retarget": ("retarget", "{old:sh} NEW"),
    "drain": ("nodes drain", "{name:sh}"),
    "undrain": ("nodes undrain", "{name:sh}"),
    "entry-resume": ("schedule resume", "{name:sh}"),
    "entry-run": ("schedule run", "{name:sh}"),
}


class Codes(dict[str, tuple[str, str]]):
    """What each code says; and what frees the thing: an act with the facts that it takes, or a command.

    `commands`: of the acts that an app has beside the coordinator's.
    """

    def __init__(self, said: Mapping[str, tuple[str, str]], commands: Commands = MappingProxyType({})) -> None:
        super().__init__(said)
        self.commands = {**COMMANDS, **commands}


_SAID = {
    # A job in line
    "waiting.lane": ("waits in lane {key:lane} behind {behind:jobs}[, with {ahead} ahead of it]", ""),
    "waiting.limit": (
        "waits in lane {key:lane}, whose limit of {limit} is used up by {behind:jobs}[, with {ahead} ahead of it]",
        "limit key limit=greater",
    ),
    "waiting.alone": ("waits in lane {key:lane} to run alone (exclusive), behind {behind:jobs}", ""),
    "waiting.exclusive": ("waits in lane {key:lane} behind {behind:jobs}, which runs alone (exclusive)", ""),
    "waiting.paused": ("is paused" + _BY, "resume key"),
    "waiting.closed": ("has the limit 0" + _BY, "limit key limit=1"),
    "waiting.next": ("is in front of its lanes and starts next", ""),
    # A job that is ready for a node
    "waiting.fleet": ("{what}, and no node is alive", "celery -A APP worker"),
    "waiting.node": ("{what}, and no living node takes it: {rejected:names}", ""),
    "waiting.slot": ("{what}, and all slots of the nodes that may run it are taken: {full:names}", ""),
    "waiting.claim": ("{what}, and node {node} has room for it[; the last runner there failed: {failure}]", ""),
    "rejected.app": ("is rejected by {count} of {nodes} nodes, of another app than {lacks!r}: {who:names}", ""),
    "rejected.queue": (
        "is rejected by {count} of {nodes} nodes, which do not serve the queue {lacks!r}: {who:names}",
        "celery -A APP worker -Q {lacks:sh}",
    ),
    "rejected.label": (
        "is rejected by {count} of {nodes} nodes, which lack the label {lacks!r}: {who:names}",
        "COORDINATOR_LABELS={labels:sh} celery -A APP worker",
    ),
    "rejected.lost": ("was lost by nodes: {says:names}", ""),
    "rejected.task": (
        "is rejected by {count} of {nodes} nodes, which do not have the task {lacks!r}: {who:names}",
        "retarget old=lacks",
    ),
    "rejected.drains": (
        "is rejected by {count} of {nodes} nodes, which drain: {who:names}",
        "undrain name=drained",
    ),
    "rejected.full": ("is rejected by {count} of {nodes} nodes, whose slots are taken: {who:names}", ""),
    # A job at work
    "running.job": (
        "runs on node {node}[ (pid {pid})] for {for_:span}, attempt {attempt}[, step {step} of {steps}]"
        "[, {done} of {total} done ({percent} %)][; fence {fence}][, lease good for {lease:span}]",
        "cancel id",
    ),
    "running.rollback": (
        "is rolled back on node {node}[ (pid {pid})] for {for_:span}[; fence {fence}][, lease good for {lease:span}]",
        "",
    ),
    "running.stopping": ("is being stopped, to end as {ends}[, by {by}][: {why}]", ""),
    "running.orphan": (
        "runs on node {node}, which is not alive: another takes the job when its lease ends[, in {lease:span}]",
        "",
    ),
    "running.lock": (
        "is a lock in plain code, held for {for_:span}[; fence {fence}][, lease good for {lease:span}]",
        "release key holder=id",
    ),
    "running.grab": (
        "is the grab of {instance} of {key} by {winner} ({place})[ since {since:at}]",
        "release-grab key instance attempt",
    ),
    # A job whose time is to come
    "later.scheduled": ("is scheduled for later[: {due:at}][ (in {left:span})]", ""),
    "later.retry": (
        "is tried again[ at {due:at}][ (in {left:span})]: attempt {attempt} ended in {error}",
        "retry id",
    ),
    "later.sorter": ("is held by the sorter {sorter!r} until no more come[: {due:at}][ (in {left:span})]", ""),
    "later.flush": ("is among the orders that the sorter {sorter!r} is putting in line", ""),
    "parked.results": ("{what} until its sub-results ({count}) have all ended: {ids:names}", ""),
    "parked.begun": ("{what}: its sub-task {task} was begun on node {node}", ""),
    "parked.unbegun": (
        "{what}: the other {count} sub-tasks have not begun, or have ended; a message that a lost node had fetched "
        "comes again after the broker's visibility_timeout (RabbitMQ: at once)",
        "",
    ),
    "parked.until": ("{what}: its {limit} ends the wait at the latest[: {due:at}][ (in {left:span})]", ""),
    "held": ("is held for an operator, who retries or cancels it[: {error}]", "retry id"),
    "over": ("is over, {state}[: {error}]", "retry id=again"),
    "damaged": ("has a damaged record: {fields:names}", ""),
    # A lane, by its key
    "lane.free": ("is free: no job is in line", ""),
    "lane.held": ("is held by {holders:jobs}; jobs in line: {length}", ""),
    "lane.line": ("is held by nobody; jobs in line: {length}; {behind:jobs} is in front", ""),
    # A node
    "node.gone": ("is not alive[; living nodes: {living:names}]", "celery -A APP worker -n {name:sh}"),
    "node.lost": (
        "was killed or cut off {at:at}[ on {host}]; {held}[; living nodes: {living:names}]",
        "celery -A APP worker -n {name:sh}",
    ),
    "node.silent": ("has missed its heartbeats: others take over its jobs", ""),
    "node.drains": (
        "drains" + _BY + "[, since its worker {stops}]: it gets no new jobs",
        "undrain name=drained",
    ),
    "node.full": ("has no free slot: {running} jobs, {ordinary} ordinary tasks, {capacity} slots", ""),
    "node.busy": ("works: {running} jobs, {ordinary} ordinary tasks, {capacity} slots", ""),
    "node.deaf": ("does not answer its wake-ups, and is woken last[; the last runner there failed: {failure}]", ""),
    "node.braked": ("is short of CPU or memory (load {load:.0%}, memory {memory:.0%}), and is woken late", ""),
    "node.lacks": ("cannot take {count} ready jobs: it is {rejected} {lacks!r}", ""),
    "node.offered": ("is woken for {count} ready jobs", ""),
    "node.idle": ("has nothing to do: no job is ready for it", ""),
    # An entry of the schedule
    "entry.paused": ("is paused" + _BY, "entry-resume name"),
    "entry.omitted": ("leaves out {omitted:at}" + _BY, ""),
    "entry.beat": (
        "is sent by no beat: none has stood for the source {source!r}[ for {silent:span}]",
        BEAT,
    ),
    "entry.unsent": ("has an instant, {instant:at}, that a beat took and has not sent: another does if it dies", ""),
    "entry.late": ("was due at {instant:at}, and no beat has sent that yet", ""),
    "entry.skipped": ("was skipped at {instant:at}, since the lane {key:lane} was busy", ""),
    "entry.failed": ("could not be made into a job or task at {instant:at}[: {error}]", ""),
    "entry.missed": ("was missed at {instant:at}: no beat sent it in time", ""),
    "entry.job": ("sent {instant:at}: its job {job} is {state}", ""),
    "entry.due": ("is due next at {due:at}[ (in {left:span})]", "entry-run name"),
    "entry.over": ("has no instant to come", ""),
}
CODES = Codes(_SAID)


def cause(code: str, thing: str, of: Sequence[str] = (), codes: Codes = CODES, /, **facts: Json) -> Cause:
    """Make a cause of its facts. `of`: the things to which it leads; `codes`: those of an app."""
    says, frees = codes[code]
    text = f"{shown_lane(thing)} {_written(says, facts)}"
    act, *names = frees.split(" ")
    if act not in codes.commands:
        return Cause(code, thing, text, facts, _written(frees, facts) or None, tuple(of))
    pairs = [(name, fact or name) for name, _, fact in (text.partition("=") for text in names)]
    known = {name: fact if fact.isdigit() else facts.get(fact) for name, fact in pairs}
    if None in known.values():
        return Cause(code, thing, text, facts, None, tuple(of))
    values = {name: str(value) for name, value in known.items()}
    return Cause(code, thing, text, facts, command(act, values, codes.commands), tuple(of), act, values)


def command(act: str, values: Mapping[str, Json], commands: Commands = COMMANDS) -> str:
    """The command of an act, which wants a reason. A name that begins with a dash stands behind `--`."""
    verb, things = (_words.vformat(part, (), values) for part in commands[act])
    dashed = any(value.startswith("-") for value in shlex.split(things))
    return f"coordinator {verb} --why … -- {things}" if dashed else f"coordinator {verb} {things} --why …"


def names(all_: Sequence[str]) -> list[Json]:
    """The first names, for a fact."""
    return [*all_[:MOST_NAMES]]


class _Words(Formatter):
    """Writes facts for people."""

    def format_field(self, value: object, spec: str) -> str:
        if spec == "span":
            return span_text(float(str(value)))
        if spec == "at":
            return moment(datetime.fromisoformat(str(value)))
        if spec == "lane":
            return repr(shown_lane(str(value)))
        if spec == "sh":
            return shlex.quote(shown_lane(str(value)))
        if spec in ("jobs", "names") and isinstance(value, list):
            more = ", …" * (len(value) == MOST_NAMES)
            return "job " * (spec == "jobs") + ", ".join(map(str, value)) + more
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
_words, _optional = _Words(), re.compile(r"\[([^\[\]]*)\]")


def _written(template: str, facts: Mapping[str, Json]) -> str:
    def part(found: re.Match[str]) -> str:
        needed = [name for _, name, _, _ in _words.parse(found[1]) if name]
        return found[1] if all(facts.get(name) not in (None, "", []) for name in needed) else ""

    return " ".join(_words.vformat(_optional.sub(part, template), (), facts).splitlines())
