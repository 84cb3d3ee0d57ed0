"""Sorters hold orders that come in any sequence, and put them in line sorted.

An order that a sorter holds is a job in state `collected`: kept, visible, cancellable, in no line. Once no new order
came for `idle_timeout`, or `max_wait` after the first, any node's warden flushes the sorter: the first step seals the
batch (later orders belong to the next batch). Each step puts the next few hundred orders in line and takes them off the
batch at once, so that the warden that goes on after a crash meets exactly the rest.

Orders stand by the bytes of their sort keys, which the adding process makes: all processes that add to a sorter must
name the same `order`. The last caller of `add` decides `idle_timeout` and `max_wait`. Redis keeps nothing of an empty
sorter.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Unpack, cast

from coordinator.author import Acting, Author, act_of, refuses_viewers
from coordinator.errors import DuplicateOrder, InvalidJob, StoreRefused, StoreUnavailable
from coordinator.jobs import validation
from coordinator.jobs.options import SorterOptions, SubmitOptions
from coordinator.jobs.record import fields
from coordinator.jobs.request import JobRequest, check_options, check_signature
from coordinator.jobs.states import Sorted
from coordinator.jobs.submission import Submission
from coordinator.sorters.directory import DirectoryWatch, File
from coordinator.store.client import Store
from coordinator.store.reading import FieldReader, text_in
from coordinator.store.times import milliseconds

ORDERS = ("alphabetical", "natural")
STEP = 300  # orders that one step of a flush puts in line

_MOST_UNSURE = 10_000
_DIGITS = re.compile("[0-9]+")

MakeRequest = Callable[[str | Sequence[str], Mapping[str, object], SubmitOptions], JobRequest]


@dataclass(frozen=True, slots=True)
class SorterStatus:
    """A sorter that holds orders, at one moment.

    `collected`: the number of orders that it holds; `flushing`: how many of a sealed batch are still to be put in
    line. `first`: when the first collected order came; `due`: when the sorter is flushed unless more come. Both are
    None where nothing is collected.
    """

    name: str
    collected: int
    flushing: int
    first: datetime | None
    due: datetime | None


@dataclass(frozen=True, slots=True)
class Order:
    """An order to hold. `idle`, `longest`: ms, `longest` 0 = without end. `path`, `identity`: of the file behind it.

    `act`: of the operator who adds it.
    """

    request: JobRequest
    sorter: str
    sort_key: str
    idle: int
    longest: int
    path: bytes = b""
    identity: str = ""
    act: str = ""


class Sorters:
    """Reads and changes the sorters of an installation in Redis."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._unsure: dict[str, str] = {}

    def hold(self, order: Order, token: str | None = None) -> str:
        """Hold an order; returns `collected`, `duplicate` or `seen` (functions/steps/sorter.lua).

        After a lost reply, repeat the call with the same token, or from the same process.
        """
        request = order.request
        batch_token = token or self._unsure.get(request.id) or uuid.uuid4().hex
        try:
            reply = self.store.step(
                "sorter_add", request.id, "\n".join(request.keys), order.sorter, order.sort_key,
                order.idle, order.longest, batch_token, request.priority, request.not_before, order.path,
                order.identity, order.act, *request.fields, job_id=request.id,
            )  # fmt: skip
        except StoreUnavailable:
            self._unsure[request.id] = batch_token
            if len(self._unsure) > _MOST_UNSURE:
                del self._unsure[next(iter(self._unsure))]
            raise
        except StoreRefused as error:
            # A full Redis refuses the step without running it: an order that it holds already counts as collected.
            if not error.full or fields(self.store, request.id, "asked") != [batch_token]:
                raise
            reply = b"collected"
        self._unsure.pop(request.id, None)
        return str(reply.decode())

    def flush(self, name: str, act: str) -> int:
        """Put what the sorter has collected in line, and what other sorters have that are due, too."""
        count = int(self.store.step("sorter_hasten", name, act))
        while count and self.store.step("sorter_flush", STEP):
            pass
        return count

    def all(self) -> list[SorterStatus]:
        """Read the sorters that hold orders, by name."""
        names = self.store.read("ZRANGE", self.store.key("sorters"), 0, -1)
        sorters = (self.look(name.decode()) for name in sorted(names))
        return [sorter for sorter in sorters if sorter.collected or sorter.flushing]

    def look(self, name: str) -> SorterStatus:
        counted = [("ZCARD", self.store.key(kind, name)) for kind in ("collected", "batch")]
        times = ("HMGET", self.store.key("sorter", name), "first", "due")
        collected, flushing, (first, due) = self.store.read_many([*counted, times], atomic=True)
        reader = FieldReader({"first": text_in(first), "due": text_in(due)})
        return SorterStatus(name, collected, flushing, reader.instant("first"), reader.instant("due"))

    def orders(self, name: str, most: int) -> list[str]:
        commands = [("ZRANGE", self.store.key(kind, name), 0, most - 1) for kind in ("batch", "collected")]
        batch, collected = self.store.read_many(commands, atomic=True)
        return [member.partition(b"\0")[2].decode() for member in [*batch, *collected][:most]]

    def remembered(self, name: str) -> dict[bytes, str]:
        """Read the files that have their orders: path -> identity."""
        files = self.store.read("HGETALL", self.store.key("seen", name))
        return {path: identity.decode() for path, identity in files.items()}

    def forget(self, name: str, files: Mapping[bytes, str]) -> None:
        self.store.step("sorter_forget", name, *(part for pair in files.items() for part in pair))


@validation.checks_arguments
class Sorter:
    """Adds orders to one sorter."""

    def __init__(
        self, sorters: Sorters, make: MakeRequest, name: str, idle_timeout: float, max_wait: float | None, order: Sorted
    ) -> None:
        self.name = _checked_name(name)
        self._sorters = sorters
        self._make = make
        self._idle = _at_least_1_ms("idle_timeout", idle_timeout)
        self._longest = 0 if max_wait is None else _at_least_1_ms("max_wait", max_wait)
        self._natural = validation.one_of("order", order, ORDERS) == "natural"

    @refuses_viewers
    def add(
        self,
        order_id: str,
        key: str | Sequence[str],
        signature: Mapping[str, object],
        *,
        token: str | None = None,
        why: str | None = None,
        by: str | Author | None = None,
        ticket: str = "",
        **options: Unpack[SorterOptions],
    ) -> Submission:
        """Hold the job `<name>/<order_id>` until the sorter is flushed: outcome `collected`. Options: as for `submit`.

        Raises DuplicateOrder while an order of this id is kept, waiting or over; InvalidJob before anything is written;
        StoreUnavailable(job_id): unknown, ask again from this process, or from any with the same `token`. With
        `why`, the audit trail has it as an operator's act.
        """
        order = self._order(order_id, key, signature, options)
        if why is not None:
            order = replace(order, act=act_of(why, by, ticket))
        if self._sorters.hold(order, token) == "duplicate":
            raise DuplicateOrder(order.request.id)
        return Submission(order.request.id, "collected", -1)

    @refuses_viewers
    def flush(self, **acting: Unpack[Acting]) -> int:
        """Put what the sorter holds in line now, and give the number of orders; 0: it holds none."""
        return self._sorters.flush(self.name, act_of(**acting))

    def orders(self, most: int = 100) -> tuple[str, ...]:
        """Ids of the jobs that the sorter holds, in the order in which they will be put in line."""
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
        **options: Unpack[SorterOptions],
    ) -> None:
        """Add an order for each file in `directory` whose name matches `pattern`, once each, until `stop` is set.

        Blocks: run it in a process of its own, or in several. `key` and `signature` may be functions of the file's
        path. `coordinator.sorters.directory` says which files count, and when a file is complete and new. Raises
        InvalidJob at once for arguments that can work with no file.
        """
        if isinstance(key, str) or not callable(key):
            validation.check_keys(key)
        if hasattr(signature, "delay") and not isinstance(signature, Mapping):
            raise InvalidJob(f"signature {signature!r} is a task: give task.s(…), or a function of the path")
        if not callable(signature) or isinstance(signature, Mapping):
            check_signature(signature)
        if not isinstance(directory, str | os.PathLike) or not (stop is None or hasattr(stop, "wait")):
            raise InvalidJob(f"watch takes a path and an Event, not {directory!r:.80} and {stop!r:.80}")
        _check_order_options(options)

        def take(order_id: str, file: File) -> str:
            keys = key if isinstance(key, str) or not callable(key) else key(file.path)
            chosen = signature if isinstance(signature, Mapping) else signature(file.path)
            order = self._order(order_id, keys, chosen, options, os.fsencode(file.path), file.identity)
            return self._sorters.hold(order)

        remembered, forget = partial(self._sorters.remembered, self.name), partial(self._sorters.forget, self.name)
        DirectoryWatch(Path(directory), pattern, take, remembered, forget).run(poll, stop or threading.Event())

    def _order(
        self,
        order_id: str,
        key: str | Sequence[str],
        signature: Mapping[str, object],
        options: SorterOptions,
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
        request = self._make(key, signature, cast(SubmitOptions, {**options, "job_id": job_id}))
        sort_key = natural(order_id) if self._natural else order_id
        return Order(request, self.name, sort_key, self._idle, self._longest, path, identity)


def natural(text: str) -> str:
    """A sort key by whose bytes 2 comes before 9 before 10: before each run of digits stands its length."""

    def measured(run: re.Match[str]) -> str:
        number = run[0].lstrip("0")
        return f"{len(number):03}{number}"

    return _DIGITS.sub(measured, text)


def _check_order_options(order_options: SorterOptions) -> None:
    """Refuse options that an order cannot have, though a caller without type checks may name them."""
    check_options(order_options)
    options = cast(SubmitOptions, order_options)
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
