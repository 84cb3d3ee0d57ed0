"""Does the steps of a recording again, at a store alone: the same answers, and the same keys."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import redis

from coordinator.core.store.library import assemble
from proof.model.clock import AGAIN, go_to
from proof.model.raw import Dump, text_of
from proof.steps.recording import Look, Recording, Step
from tasks.documents.library import DECLARED
from tasks.documents.library import text_of as text
from tests.harness.functions import RULES, STEPS

# What belongs to the clock that is set by hand; and what no step wrote, or not all of it: notes of maintenance and
# readers, and what authors, waiters and nodes take from their lists.
_APART = (
    "answer:", "ends", "time", "told", "silence", "deaths:", "declared", "inboxes", "looked", "errands:", "troubles:",
    "turn:", "wakes:", "whereabouts",
)  # fmt: skip


def path_to(recording: Recording, prefix: str, state: str) -> list[Step]:
    """The steps that lead from an empty store to a state, with those that only read on the way; none: it is none of
    this installation's.
    """
    made, reading = dict[str, Step](), defaultdict[str, list[Step]](list)
    for step in (step for log in recording.steps(prefix) for step in log):
        if step.before == step.after:
            reading[step.before].append(step)
        else:
            made[step.after] = step
    way: list[Step] = []
    while state and (way or state in made):
        way[:0] = [made[state], *reading[state]]
        state = made[state].before
    return way


class Again:
    """A store in which recorded steps are done."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self._client, self._prefix = client, prefix
        self._life = ""
        self._offered: set[str] = set()
        self._library = assemble(text, AGAIN, rules=RULES, steps=STEPS, declared=DECLARED)

    def do(self, step: Step) -> str:
        """How its answer differs, "" = not at all."""
        if step.life != self._life:
            self._life = step.life
            self._client.function_flush("SYNC")
            self._client.function_load(self._library.text)
        at = step.begun if step.time is None else step.time
        since = step.begun // 1000  # a key is gone once its last ms is over
        go_to(self._client, self._prefix, at / 1000, since, since - 1)
        told = self._prefix + "told"
        if step.outside:
            self._client.rpush(told, *step.outside)
        self._client.delete(gone := f"{told}:gone")
        if step.name == "document_report" and step.reply[5]:
            self._client.sadd(gone, *step.reply[5])
        if step.name == "trouble_take":
            self._remove_troubles(step)
        function = f"{step.name}_{self._library.digest}"
        args = [arg.encode(errors="surrogateescape") for arg in step.args]
        try:
            reply = _numbers(text_of(self._client.fcall(function, 1, self._prefix, *args)))
        except redis.ResponseError as error:
            return "" if step.error else f"failed: {error}"
        left = self._client.delete(told)
        if _form(step.name, reply) == _form(step.name, step.reply) and not left:
            return ""
        return f"answers {reply}, and answered {step.reply}"

    def _remove_troubles(self, step: Step) -> None:
        """Maintenance takes away what it has reported; no step does."""
        told = self._offered - {step.reply}
        if told:
            self._client.zrem(self._prefix + "troubles:" + step.args[0], *told)
        self._offered = {step.reply} - {None}

    def differences(self, look: Look) -> Iterator[str]:
        """Of the keys that were there."""
        go_to(self._client, self._prefix, look.time / 1000, 0, look.time // 1000 - 1)
        then, now = Dump(look.rows), Dump.of(self._client, self._prefix)
        for name in sorted({*then.held, *now.held}):
            was, now_is = _canonical(then.held.get(name)), _canonical(now.held.get(name))
            if name.startswith(_APART) or was == now_is:
                continue
            if isinstance(was, dict) and isinstance(now_is, dict):
                was = {field: value for field, value in was.items() if value != now_is.get(field)}
                now_is = {
                    field: value for field, value in now_is.items() if field in was or field not in then.held[name]
                }
            yield f"{name}: was {was}, is {now_is}"


def _canonical(held: Any) -> Any:
    """Lua goes through a table in an order that is another in each process: that of JSON's members, and of pairs."""
    if isinstance(held, dict):
        return {name: _canonical(value) for name, value in held.items()}
    if isinstance(held, list | tuple):
        return [_canonical(value) for value in held]
    if isinstance(held, str) and "\n" in held:
        return [_canonical(line) for line in held.split("\n")]
    begin = min((place for place in map(held.find, "{[") if place >= 0), default=-1) if isinstance(held, str) else -1
    try:
        value = json.loads(held[begin:]) if begin >= 0 else None
    except ValueError:
        value = None
    if value is None:
        return held
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], list):  # of a stream
        value = sorted(zip(value[1][::2], value[1][1::2], strict=True))  # the server names its entries by its own time
    return held[:begin] + json.dumps(value, sort_keys=True)


def _form(name: str, told: Any) -> Any:
    """What of an answer is the same in each process."""
    if name == "counts_read":
        told = sorted(zip(told[::2], told[1::2], strict=True))
    if name == "entries_read":
        told = [*told[:2], *sorted(told[2:])]
    if name == "document_report":  # members, as a set has them
        told = [*told[:5], sorted(told[5])]
    if name == "node_beat":  # whether maintenance is due depends on the troubles that it took away
        told = [*told[:3], *told[4:]]
    return _canonical(told)


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(one) for one in value]
    return str(value) if isinstance(value, int) else value


def replay(recording: Recording, prefix: str, way: list[Step], client: redis.Redis) -> Iterator[str]:
    """Do these steps, from an empty store on; sentences of what differs."""
    again, looks = Again(client, prefix), recording.looked(prefix, way)
    for number, step in enumerate(way):
        if text := again.do(step):
            yield f"{step.after}: {step.name}{tuple(step.args)} {text}"
        if number in looks:
            yield from (f"{step.after}: {text}" for text in again.differences(looks[number]))
