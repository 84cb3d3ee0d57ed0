"""Sorters: orders that come in any order are held, and put in line sorted.

An order that a sorter holds is a job in state `collected`: kept, visible, cancellable, in no line. Once no new one came
for `idle_timeout`, or `max_wait` after the first, any node's warden flushes the sorter: the first step seals the batch
(who comes later belongs to the next), and each step puts the next few hundred of it in line and takes them off the
batch in one script, so that whoever goes on after a crash finds exactly what is left.

Orders stand by the bytes of their sort keys, made where they are added: all that add to one sorter name the same
`order`. Of `idle_timeout` and `max_wait`, those of the last one to add count. What a sorter has goes with its orders.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from coordinator import checks
from coordinator.arrivals import File, Watch
from coordinator.drafts import Draft, check_signature, options_of
from coordinator.errors import DuplicateOrder, InvalidJob, StoreUnavailable
from coordinator.jobs import Submission
from coordinator.store import Store, milliseconds, seconds

ORDERS = ("alphabetical", "natural")
STEP = 300  # orders that one step of a flush puts in line

_MOST_UNSURE = 10_000
_DIGITS = re.compile("[0-9]+")

MakeDraft = Callable[[str | Sequence[str], Mapping[str, Any], Mapping[str, Any]], Draft]


@dataclass(frozen=True, slots=True)
class Sorting:
    """A sorter that holds orders, at one moment.

    `collected`: how many it holds; `flushing`: how many of a sealed batch are still to be put in line. `first`: when
    the first of those collected came, `due`: when they are flushed unless more come; None: nothing is collected.
    """

    name: str
    collected: int
    flushing: int
    first: datetime | None
    due: datetime | None


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be held: times are ms, `longest` 0 = without end. `path`, `identity`: the file it is made of."""

    draft: Draft
    sorter: str
    sort_key: str
    idle: int
    longest: int
    path: bytes = b""
    identity: str = ""


class Sorters:
    """All sorters of an installation, as they are in Redis."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._unsure: dict[str, str] = {}

    def hold(self, order: Order, token: str | None = None) -> str:
        """`collected`, `duplicate` or `seen` (lua/sorter_add.lua).

        An answer that was lost may be asked for again: with the same token, or from the same process.
        """
        draft = order.draft
        asked = token or self._unsure.get(draft.id) or uuid.uuid4().hex
        try:
            reply = self.store.run(
                "sorter_add", draft.id, "\n".join(draft.keys), order.sorter, order.sort_key, order.idle, order.longest,
                asked, draft.priority, draft.not_before, order.path, order.identity, *draft.fields, job_id=draft.id,
            )  # fmt: skip
        except StoreUnavailable:
            self._unsure[draft.id] = asked
            if len(self._unsure) > _MOST_UNSURE:
                del self._unsure[next(iter(self._unsure))]
            raise
        self._unsure.pop(draft.id, None)
        return str(reply.decode())

    def all(self) -> list[Sorting]:
        """By name; those that hold nothing are not known."""
        names = self.store.call(lambda: self.store.client.zrange(self.store.key("sorters"), 0, -1))
        found = (self.look(name.decode()) for name in sorted(names))
        return [one for one in found if one.collected or one.flushing]

    def look(self, name: str) -> Sorting:
        def ask() -> list[Any]:
            pipeline = self.store.client.pipeline()
            pipeline.zcard(self.store.key("collected", name))
            pipeline.zcard(self.store.key("batch", name))
            pipeline.hmget(self.store.key("sorter", name), "first", "due")
            return list(pipeline.execute())

        collected, flushing, (first, due) = self.store.call(ask)
        return Sorting(name, collected, flushing, _instant(first), _instant(due))

    def orders(self, name: str, most: int) -> list[str]:
        def ask() -> list[Any]:
            pipeline = self.store.client.pipeline()
            for kind in ("batch", "collected"):
                pipeline.zrange(self.store.key(kind, name), 0, most - 1)
            return list(pipeline.execute())

        batch, collected = self.store.call(ask)
        return [member.partition(b"\0")[2].decode() for member in [*batch, *collected][:most]]

    def remembered(self, name: str) -> dict[bytes, str]:
        """The files that have their orders: path -> identity."""
        found = self.store.call(lambda: self.store.client.hgetall(self.store.key("seen", name)))
        return {path: identity.decode() for path, identity in found.items()}

    def forget(self, name: str, files: Mapping[bytes, str]) -> None:
        self.store.run("sorter_forget", name, *(part for pair in files.items() for part in pair))


class Sorter:
    """One sorter, as one process adds to it."""

    def __init__(
        self, sorters: Sorters, draft: MakeDraft, name: str, idle_timeout: float, max_wait: float | None, order: str
    ) -> None:
        self.name = _checked_name(name)
        self._sorters = sorters
        self._draft = draft
        idle = checks.limit("idle_timeout", idle_timeout)
        if idle is None:
            raise InvalidJob("idle_timeout is seconds above 0, not None")
        self._idle, self._longest = _at_least_1_ms(idle), _at_least_1_ms(checks.limit("max_wait", max_wait))
        self._natural = checks.one_of("order", order, ORDERS) == "natural"

    def add(
        self,
        order_id: str,
        key: str | Sequence[str],
        signature: Mapping[str, Any],
        *,
        token: str | None = None,
        **options: Any,
    ) -> Submission:
        """Hold a job, `<name>/<order_id>`, until the sorter is flushed: outcome `collected`. Options: as of `submit`.

        Raises DuplicateOrder while an order of this id is kept, waiting or over; InvalidJob before anything is written;
        StoreUnavailable(job_id): unknown, ask again from this process, or from any with the same `token`.
        """
        order = self._order(order_id, key, signature, options)
        if self._sorters.hold(order, token) == "duplicate":
            raise DuplicateOrder(order.draft.id)
        return Submission(order.draft.id, "collected", -1)

    def orders(self, most: int = 100) -> tuple[str, ...]:
        """Ids of the jobs that are held, in the order in which they will be put in line."""
        return tuple(self._sorters.orders(self.name, checks.count("most", most, 1)))

    def watch(
        self,
        directory: str | os.PathLike[str],
        pattern: str = "*",
        *,
        key: str | Sequence[str] | Callable[[Path], str | Sequence[str]],
        signature: Mapping[str, Any] | Callable[[Path], Mapping[str, Any]],
        poll: float = 1.0,
        stop: threading.Event | None = None,
        **options: Any,
    ) -> None:
        """Add an order for each file in `directory` whose name matches `pattern`, once each, until `stop` is set.

        Blocks: run it in a process of its own, any number of them. `key` and `signature` may be functions of the file's
        path. What counts as a file, as complete and as new: `coordinator.arrivals`. Raises InvalidJob at once for what
        can work with no file.
        """
        if isinstance(key, str) or not callable(key):
            checks.check_keys(key)
        if hasattr(signature, "delay") and not isinstance(signature, Mapping):
            raise InvalidJob(f"signature {signature!r} is a task: give task.s(…), or a function of the path")
        if isinstance(signature, Mapping):
            check_signature(signature)
        _check_options(options)

        def take(order_id: str, file: File) -> str:
            named = key if isinstance(key, str) or not callable(key) else key(file.path)
            made = signature if isinstance(signature, Mapping) else signature(file.path)
            order = self._order(order_id, named, made, options, os.fsencode(file.path), file.identity)
            return self._sorters.hold(order)

        remembered, forget = partial(self._sorters.remembered, self.name), partial(self._sorters.forget, self.name)
        Watch(Path(directory), pattern, take, remembered, forget).run(poll, stop or threading.Event())

    def _order(
        self, order_id: str, key: Any, signature: Any, options: Mapping[str, Any], path: bytes = b"", identity: str = ""
    ) -> Order:
        _check_options(options)
        if not isinstance(order_id, str) or not checks.printable(order_id):
            raise InvalidJob(f"order_id {order_id!r}: give text that is not empty, without control characters")
        job_id = f"{self.name}/{order_id}"
        if len(job_id.encode()) > 512:
            raise InvalidJob(f"order_id {order_id[:40]!r}… is too long: with the sorter's name, at most 511 bytes")
        draft = self._draft(key, signature, {**options, "job_id": job_id})
        sort_key = natural(order_id) if self._natural else order_id
        return Order(draft, self.name, sort_key, self._idle, self._longest, path, identity)


def natural(text: str) -> str:
    """A sort key by whose bytes 2 comes before 9 before 10: before each run of digits stands its length."""

    def measured(run: re.Match[str]) -> str:
        number = run[0].lstrip("0")
        return f"{len(number):03}{number}"

    return _DIGITS.sub(measured, text)


def _check_options(options: Mapping[str, Any]) -> None:
    if "job_id" in options:
        raise InvalidJob("job_id: of an order, it is made of the sorter's name and the order's id")
    if (when_busy := options_of(options).when_busy) != "queue":
        raise InvalidJob(f"when_busy={when_busy!r}: a sorter's orders all stand in line")
    if options_of(options).max_waiting is not None:
        raise InvalidJob("max_waiting looks at the lane now, a sorter's orders enter it later: set it on submit alone")


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not checks.printable(name) or "/" in name or len(name.encode()) > 100:
        raise InvalidJob(f"sorter {name!r}: a name is 1 to 100 bytes of text, without / and control characters")
    return name


def _at_least_1_ms(given: float | None) -> int:
    return 0 if given is None else max(1, milliseconds(given))


def _instant(at: bytes | None) -> datetime | None:
    when = seconds(at)
    return None if when is None else datetime.fromtimestamp(when, UTC)
