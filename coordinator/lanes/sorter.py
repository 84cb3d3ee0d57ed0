"""Sorters hold orders that come in any sequence, and put them in line sorted.

An order that a sorter holds is a job in state `collected`: kept, visible, cancellable, in no line. Once no new one came
for `idle_timeout`, or `max_wait` after the first, any node's warden flushes the sorter: the first step seals the batch
(later orders belong to the next one). Each step puts the next few hundred of it in line and takes them off the batch
at once, so that the warden that goes on after a crash finds exactly the rest.

Orders stand by the bytes of their sort keys, made where they are added: all that add to one sorter name the same
`order`. The last caller of `add` decides `idle_timeout` and `max_wait`. Redis keeps nothing of an empty sorter.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Unpack, cast

from coordinator.errors import DuplicateOrder, InvalidJob, StoreRefused, StoreUnavailable
from coordinator.jobs import validation
from coordinator.jobs.options import Options, OrderOptions
from coordinator.jobs.record import fields
from coordinator.jobs.request import JobRequest, check_options, check_signature
from coordinator.jobs.states import Sorted
from coordinator.jobs.submission import Submission
from coordinator.lanes.directory import File, Watch
from coordinator.store.client import Store
from coordinator.store.times import instant, milliseconds

ORDERS = ("alphabetical", "natural")
STEP = 300  # orders that one step of a flush puts in line

_MOST_UNSURE = 10_000
_DIGITS = re.compile("[0-9]+")

MakeRequest = Callable[[str | Sequence[str], Mapping[str, object], Options], JobRequest]


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
    """An order to hold: times are ms, `longest` 0 = without end. `path`, `identity`: the file it is made of."""

    request: JobRequest
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
        """`collected`, `duplicate` or `seen` (functions/steps/sorter.lua).

        An answer that was lost may be asked for again: with the same token, or from the same process.
        """
        request = order.request
        asked = token or self._unsure.get(request.id) or uuid.uuid4().hex
        try:
            reply = self.store.step(
                "sorter_add", request.id, "\n".join(request.keys), order.sorter, order.sort_key,
                order.idle, order.longest, asked, request.priority, request.not_before, order.path, order.identity,
                *request.fields, job_id=request.id,
            )  # fmt: skip
        except StoreUnavailable:
            self._unsure[request.id] = asked
            if len(self._unsure) > _MOST_UNSURE:
                del self._unsure[next(iter(self._unsure))]
            raise
        except StoreRefused as error:
            # A full Redis refuses the step before it looks: an order that it holds already is collected all the same.
            if not error.full or fields(self.store, request.id, "asked") != [asked]:
                raise
            reply = b"collected"
        self._unsure.pop(request.id, None)
        return str(reply.decode())

    def all(self) -> list[Sorting]:
        """By name; those that hold nothing are not known."""
        names = self.store.read("ZRANGE", self.store.key("sorters"), 0, -1)
        found = (self.look(name.decode()) for name in sorted(names))
        return [one for one in found if one.collected or one.flushing]

    def look(self, name: str) -> Sorting:
        counted = [("ZCARD", self.store.key(kind, name)) for kind in ("collected", "batch")]
        times = ("HMGET", self.store.key("sorter", name), "first", "due")
        collected, flushing, (first, due) = self.store.read_many([*counted, times], atomic=True)
        return Sorting(name, collected, flushing, instant(first), instant(due))

    def orders(self, name: str, most: int) -> list[str]:
        asked = [("ZRANGE", self.store.key(kind, name), 0, most - 1) for kind in ("batch", "collected")]
        batch, collected = self.store.read_many(asked, atomic=True)
        return [member.partition(b"\0")[2].decode() for member in [*batch, *collected][:most]]

    def remembered(self, name: str) -> dict[bytes, str]:
        """The files that have their orders: path -> identity."""
        found = self.store.read("HGETALL", self.store.key("seen", name))
        return {path: identity.decode() for path, identity in found.items()}

    def forget(self, name: str, files: Mapping[bytes, str]) -> None:
        self.store.step("sorter_forget", name, *(part for pair in files.items() for part in pair))


class Sorter:
    """One sorter, as one process adds to it."""

    def __init__(
        self, sorters: Sorters, make: MakeRequest, name: str, idle_timeout: float, max_wait: float | None, order: Sorted
    ) -> None:
        self.name = _checked_name(name)
        self._sorters = sorters
        self._make = make
        self._idle = _at_least_1_ms("idle_timeout", idle_timeout)
        self._longest = 0 if max_wait is None else _at_least_1_ms("max_wait", max_wait)
        self._natural = validation.one_of("order", order, ORDERS) == "natural"

    def add(
        self,
        order_id: str,
        key: str | Sequence[str],
        signature: Mapping[str, object],
        *,
        token: str | None = None,
        **options: Unpack[OrderOptions],
    ) -> Submission:
        """Hold a job, `<name>/<order_id>`, until the sorter is flushed: outcome `collected`. Options: as of `submit`.

        Raises DuplicateOrder while an order of this id is kept, waiting or over; InvalidJob before anything is written;
        StoreUnavailable(job_id): unknown, ask again from this process, or from any with the same `token`.
        """
        order = self._order(order_id, key, signature, options)
        if self._sorters.hold(order, token) == "duplicate":
            raise DuplicateOrder(order.request.id)
        return Submission(order.request.id, "collected", -1)

    def orders(self, most: int = 100) -> tuple[str, ...]:
        """Ids of the jobs that are held, in the order in which they will be put in line."""
        return tuple(self._sorters.orders(self.name, validation.count("most", most, 1)))

    def watch(
        self,
        directory: str | os.PathLike[str],
        pattern: str = "*",
        *,
        key: str | Sequence[str] | Callable[[Path], str | Sequence[str]],
        signature: Mapping[str, object] | Callable[[Path], Mapping[str, object]],
        poll: float = 1.0,
        stop: threading.Event | None = None,
        **options: Unpack[OrderOptions],
    ) -> None:
        """Add an order for each file in `directory` whose name matches `pattern`, once each, until `stop` is set.

        Blocks: run it in a process of its own, any number of them. `key` and `signature` may be functions of the file's
        path. `coordinator.lanes.directory` says which files count, and when one is complete and new. Raises InvalidJob
        at once for arguments that can work with no file.
        """
        if isinstance(key, str) or not callable(key):
            validation.check_keys(key)
        if hasattr(signature, "delay") and not isinstance(signature, Mapping):
            raise InvalidJob(f"signature {signature!r} is a task: give task.s(…), or a function of the path")
        if isinstance(signature, Mapping):
            check_signature(signature)
        _check_order_options(options)

        def take(order_id: str, file: File) -> str:
            named = key if isinstance(key, str) or not callable(key) else key(file.path)
            made = signature if isinstance(signature, Mapping) else signature(file.path)
            order = self._order(order_id, named, made, options, os.fsencode(file.path), file.identity)
            return self._sorters.hold(order)

        remembered, forget = partial(self._sorters.remembered, self.name), partial(self._sorters.forget, self.name)
        Watch(Path(directory), pattern, take, remembered, forget).run(poll, stop or threading.Event())

    def _order(
        self,
        order_id: str,
        key: str | Sequence[str],
        signature: Mapping[str, object],
        options: OrderOptions,
        path: bytes = b"",
        identity: str = "",
    ) -> Order:
        _check_order_options(options)
        if not isinstance(order_id, str) or not validation.printable(order_id):
            raise InvalidJob(
                f"order_id {validation.shown(order_id)}: give text that is not empty, without control characters"
            )
        job_id = f"{self.name}/{order_id}"
        if len(job_id.encode()) > 512:
            raise InvalidJob(f"order_id {order_id[:40]!r}… is too long: with the sorter's name, at most 511 bytes")
        request = self._make(key, signature, cast(Options, {**options, "job_id": job_id}))
        sort_key = natural(order_id) if self._natural else order_id
        return Order(request, self.name, sort_key, self._idle, self._longest, path, identity)


def natural(text: str) -> str:
    """A sort key by whose bytes 2 comes before 9 before 10: before each run of digits stands its length."""

    def measured(run: re.Match[str]) -> str:
        number = run[0].lstrip("0")
        return f"{len(number):03}{number}"

    return _DIGITS.sub(measured, text)


def _check_order_options(given: OrderOptions) -> None:
    """Refuses what a caller without type checks may name, and an order cannot have."""
    check_options(given)
    options = cast(Options, given)
    if "job_id" in options:
        raise InvalidJob("job_id: of an order, it is made of the sorter's name and the order's id")
    if (when_busy := options.get("when_busy", "queue")) != "queue":
        raise InvalidJob(f"when_busy={when_busy!r}: a sorter's orders all stand in line")
    if options.get("max_waiting") is not None:
        raise InvalidJob("max_waiting looks at the lane now, a sorter's orders enter it later: set it on submit alone")


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not validation.printable(name) or "/" in name or len(name.encode()) > 100:
        raise InvalidJob(f"sorter {name!r}: a name is 1 to 100 bytes of text, without / and control characters")
    return name


def _at_least_1_ms(name: str, seconds: float) -> int:
    return max(1, milliseconds(validation.limit(name, seconds)))
