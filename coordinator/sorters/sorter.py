"""Sorters hold orders (jobs) that arrive in any sequence, and later put them in line, sorted.

An order that a sorter holds is a job in state `collected`: stored and visible, can be cancelled, in no line. Once no
new order has come for `idle_timeout`, or `max_wait` after the first, the supervisor of any node flushes the sorter: the
first step closes the batch (later orders belong to the next one), and each step puts the next few hundred orders in
line and removes them from the batch, in one transaction. So after a crash, another supervisor continues with the rest.

Redis sorts orders by the bytes of their sort keys, which the process that calls `add` makes, so all processes that add
to a sorter must use the same `order`. The `idle_timeout` and `max_wait` of the last call of `add` apply. An empty
sorter takes no memory in Redis.
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
from types import MappingProxyType
from typing import Unpack, cast

from coordinator.core.author import Acting, Author, act_of
from coordinator.core.jobs import validation
from coordinator.core.jobs.options import ORDERS_A_STEP, SorterOptions, SubmitOptions
from coordinator.core.jobs.record import fields
from coordinator.core.jobs.request import JobRequest, check_options, check_signature
from coordinator.core.jobs.states import Sorted
from coordinator.core.jobs.submission import Submission
from coordinator.core.quotas.client import QuotaClient
from coordinator.core.store.client import Store
from coordinator.core.store.reading import FieldReader, text_in
from coordinator.core.store.steps import sorter_add, sorter_flush, sorter_forget, sorter_hasten
from coordinator.core.store.times import milliseconds
from coordinator.core.verbs import SORTER, Answer, AnyCoordinator, Given, Option, verb
from coordinator.errors import DuplicateOrder, InvalidJob, StoreRefused, StoreUnavailable
from coordinator.sorters.directory import DirectoryWatch, File

ORDERS = ("alphabetical", "natural")

_MOST_UNSURE = 10_000  # orders without a reply whose tokens a process keeps for a repeated call
_DIGITS = re.compile("[0-9]+")

MakeRequest = Callable[[str | Sequence[str], Mapping[str, object], SubmitOptions], JobRequest]


@dataclass(frozen=True, slots=True)
class SorterStatus:
    """The state of a sorter at one moment.

    `collected`: the number of orders that wait for the flush; `flushing`: the number of orders of the batch being
    flushed that are not in line yet. `first`: when the first of the collected orders came; `due`: when the sorter is
    flushed if no more come; both None if there are none.
    """

    name: str
    collected: int
    flushing: int
    first: datetime | None
    due: datetime | None


@dataclass(frozen=True, slots=True)
class Order:
    """An order that a sorter should hold: `request` is its job. `sort_key`: Redis sorts the orders by its bytes.

    `idle`, `longest`: ms from the last and from the first order to the flush; `longest` 0 = no limit. `path`,
    `identity`: of the file for which a directory watch adds the order; empty: none. `act`: JSON about the operator who
    adds the order, for the audit trail; "": none.
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
    """Adds orders to sorters in Redis, and reads, flushes and forgets them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._quotas = QuotaClient(store)
        self._unsure: dict[str, str] = {}

    def hold(self, order: Order, token: str | None = None) -> str:
        """Add an order to its sorter. Returns `collected`; `duplicate`: a job of this id exists; `seen`: this version
        of the file has its order already.

        After StoreUnavailable, when the order may have been added, repeat the call from the same process or with the
        same `token`: then an added order counts as `collected`. Raises UnknownQuota, or InvalidJob, for an order that
        uses a quota that nobody declared, or too many units.
        """
        request = order.request
        self._quotas.check_uses(dict(zip(request.fields[::2], request.fields[1::2], strict=True)).get("uses"))
        batch_token = token or self._unsure.get(request.id) or uuid.uuid4().hex
        try:
            reply = sorter_add(
                self.store, request.id, "\n".join(request.keys), order.sorter, order.sort_key,
                order.idle, order.longest, batch_token, request.priority, request.not_before, order.path,
                order.identity, order.act, *request.fields,
            )  # fmt: skip
        except StoreUnavailable:
            self._unsure[request.id] = batch_token
            if len(self._unsure) > _MOST_UNSURE:
                del self._unsure[next(iter(self._unsure))]
            raise
        except StoreRefused as error:
            # A Redis that is out of memory does not even run the step: check whether the first call added the order.
            if not error.full or fields(self.store, request.id, "asked") != [batch_token]:
                raise
            reply = "collected"
        self._unsure.pop(request.id, None)
        return reply

    def flush(self, name: str, act: str) -> int:
        """Flush the sorter `name` now: put all its collected orders in line. Other sorters that are due are flushed,
        too.

        Returns the number of orders. `act`: JSON about the operator, for the audit trail.
        """
        count = sorter_hasten(self.store, name, act)
        while count and sorter_flush(self.store, ORDERS_A_STEP):
            pass
        return count

    def all(self) -> list[SorterStatus]:
        """Read the state of each sorter that holds orders, sorted by name."""
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
        """Read the files for which a directory watch has added orders to the sorter `name`: path -> identity."""
        files = self.store.read("HGETALL", self.store.key("seen", name))
        return {path: identity.decode() for path, identity in files.items()}

    def forget(self, name: str, files: Mapping[bytes, str]) -> None:
        sorter_forget(self.store, name, *(part for pair in files.items() for part in pair))


ARGUMENTS = Option("args", "A list.", "Arguments", list, (), metavar="JSON")
KEYWORDS = Option("kwargs", "An object.", "Keyword arguments", dict, MappingProxyType({}), metavar="JSON")
ORDER = (
    Option("order", "The order's id, by which it is sorted.", default="", argument=True),
    Option("key", default="", argument=True),
    Option("task", default="", argument=True),
    ARGUMENTS,
    KEYWORDS,
    Option("idle_timeout", "Flush after so many s without a new order.", kind=float, default=10.0, form=""),
    Option("max_wait", "Flush at most so many seconds after the first order.", kind=float, form=""),
    Option("sort", "By its id.", default=ORDERS[0], choices={name: name for name in ORDERS}, flag="--sorted", form=""),
)


def _of_order(coordinator: AnyCoordinator, given: Given) -> object:
    """Make the sorter for the verb `sorter-add`, and replace the options of a command in `given` by the arguments of
    `Sorter.add`: a signature in place of task and arguments.
    """
    signature = {"task": given.pop("task"), "args": [*given.pop("args")], "kwargs": dict(given.pop("kwargs"))}
    given |= {"order_id": given.pop("order"), "signature": {**signature, "options": {}}}
    return coordinator.sorter(*map(given.pop, ("name", "idle_timeout", "max_wait", "sort")))


def _flushed(_: object, given: Given, count: int) -> Answer:
    name = given["name"]
    text = f"{count} order{'s' * (count != 1)} of {name} put in line" if count else f"{name} holds no orders"
    return {"sorter": name, "orders": count}, text


def _added(_: object, given: Given, added: Submission) -> Answer:
    name = given["name"]
    return {"sorter": name, "id": added.id, "outcome": added.outcome}, f"{added.id} is held by the sorter {name}"


@validation.checks_arguments
class Sorter:
    """Adds orders to the sorter `name`, and flushes it. Made by `Coordinator.sorter`, which explains the parameters."""

    def __init__(
        self, sorters: Sorters, make: MakeRequest, name: str, idle_timeout: float, max_wait: float | None, order: Sorted
    ) -> None:
        self.name = _checked_name(name)
        self._sorters = sorters
        self._make = make
        self._idle = _at_least_1_ms("idle_timeout", idle_timeout)
        self._longest = 0 if max_wait is None else _at_least_1_ms("max_wait", max_wait)
        self._natural = validation.one_of("order", order, ORDERS) == "natural"

    @verb(SORTER, *ORDER, tell=_added, name="sorter-add", command="sorters add", title="Add an order", host=_of_order)
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
        """Add an order, a job that runs TASK in the lane KEY, to a sorter.

        The sorter holds the job `<name>/<order_id>` until the flush; the outcome is `collected`. Options are those of
        `submit`. With `why`, the audit trail notes an operator's act. Raises DuplicateOrder if a job of this id exists,
        even an ended one; InvalidJob before anything is written; StoreUnavailable if the order may have been added:
        call again from this process, or from any process with the same `token`.
        """
        order = self._order(order_id, key, signature, options)
        if why is not None:
            order = replace(order, act=act_of(why, by, ticket))
        if self._sorters.hold(order, token) == "duplicate":
            raise DuplicateOrder(order.request.id)
        return Submission(order.request.id, "collected", -1)

    @verb(SORTER, tell=_flushed, command="sorters flush", host=lambda c, given: c.sorter(given.pop("name")))
    def flush(self, **acting: Unpack[Acting]) -> int:
        """Put the orders of a sorter in line now.

        Returns the number of orders; 0: the sorter holds none.
        """
        return self._sorters.flush(self.name, act_of(**acting))

    def orders(self, most: int = 100) -> tuple[str, ...]:
        """The ids of the first `most` jobs that the sorter holds, in the order in which they will be put in line."""
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
        """Add one order for each file in `directory` whose name matches `pattern`, until `stop` is set; None: for ever.

        The call blocks: run it in a process of its own, or in several. `key` and `signature` may be functions of the
        file's path; `poll`: seconds between two looks at the directory. `coordinator.sorters.directory` says which
        files are used, and when a file is complete. Raises InvalidJob at once for invalid arguments.
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
    """A sort key for `text` in which numbers sort by value (2, 9, 10): each run of digits is preceded by its length."""

    def measured(run: re.Match[str]) -> str:
        number = run[0].lstrip("0")
        return f"{len(number):03}{number}"

    return _DIGITS.sub(measured, text)


def _check_order_options(order_options: SorterOptions) -> None:
    """Raise InvalidJob for submit options that an order cannot have: `job_id`, `after`, `max_waiting`, and `when_busy`
    other than `queue`.
    """
    check_options(order_options)
    options = cast(SubmitOptions, order_options)
    if "job_id" in options:
        raise InvalidJob("job_id: an order's job id is made of the sorter's name and the order's id; leave it out")
    if options.get("after") is not None:
        raise InvalidJob("after: the orders of a sorter are put in line together, so they wait for no other job")
    if (when_busy := options.get("when_busy", "queue")) != "queue":
        raise InvalidJob(f"when_busy={when_busy!r}: all orders of a sorter are put in line; leave it out")
    if options.get("max_waiting") is not None:
        raise InvalidJob("max_waiting limits the lane at a submit, and an order enters the lane later: leave it out")


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not validation.printable(name) or "/" in name or len(name.encode()) > 100:
        raise InvalidJob(f"sorter {name!r}: a name is 1 to 100 bytes of text, without / and control characters")
    return name


def _at_least_1_ms(name: str, seconds: float) -> int:
    return max(1, milliseconds(validation.limit(name, seconds)))
