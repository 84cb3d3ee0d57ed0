"""Declares quotas, cools them down, and reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Unpack

from coordinator.core.author import Acting, act_of
from coordinator.core.jobs import validation
from coordinator.core.jobs.rate import Rate, read_rate
from coordinator.core.jobs.uses import check_quota, uses_in
from coordinator.core.jobs.validation import count, near, printable, shown
from coordinator.core.store.client import Store
from coordinator.core.store.reading import act_in, number_in, text_in
from coordinator.core.store.step import Reply
from coordinator.core.store.steps import quota_cool, quota_declare, quota_drop, quotas_read, weight_set
from coordinator.core.store.values import ActNote
from coordinator.core.store.wire import Arg
from coordinator.errors import InvalidJob, UnknownQuota

MOST_UNITS = 10**9
_NAMED = 1000  # names among which the nearest is looked for
_PAGE = 500  # quotas that one step reads


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota at one moment.

    `concurrency`: units that may be in use at once, None: any number. `rate`: such as 100/m, with `burst` more at once;
    None: at any rate. `default`: the name of the default that it has, such as `tenant/*`; None: it is declared itself,
    or not at all (`declared` is None, too). `used`: units in use, by `users` jobs and locks. `waiting`: jobs that have
    their turn in all their lanes and lack units. `next_start`, `cools_for`: seconds until its rate lets the next unit
    start, and until its cool-down ends; 0: now. `declared`, `cooled`: {why, by, at (ms)}.
    """

    name: str
    concurrency: int | None
    rate: str | None
    burst: int | None
    used: int = 0
    users: int = 0
    waiting: int = 0
    next_start: float = 0.0
    cools_for: float = 0.0
    default: str | None = None
    declared: ActNote | None = None
    cooled: ActNote | None = None

    @property
    def free(self) -> int | None:
        """Units that nobody uses; None: any number."""
        return None if self.concurrency is None else max(0, self.concurrency - self.used)

    def __str__(self) -> str:
        bounds = [] if self.concurrency is None else [f"{self.concurrency} at once"]
        bounds += [] if self.rate is None else [f"{self.rate}, burst {self.burst}"]
        return " and ".join(bounds) or "without bounds"


def named(name: object) -> tuple[str, bool]:
    """The name of a quota, or the prefix of a default: `tenant/*` is ("tenant/", True), `*` is ("", True)."""
    if not isinstance(name, str) or not name.endswith("*"):
        return check_quota(name), False
    prefix = name[:-1]
    if prefix and (not prefix.endswith("/") or not printable(prefix)):
        raise InvalidJob(f"quota {shown(name)}: a default ends in /*, such as tenant/*, or is * alone")
    return prefix, True


def checked(name: str, concurrency: int | None, rate: str | float | None, burst: int) -> Quota:
    """Check how a quota is to be declared, and return it so. Raises InvalidJob."""
    named(name)
    if concurrency is None and rate is None:
        raise InvalidJob(f"quota {name!r}: give concurrency=N, rate='100/m', or both")
    if concurrency is not None and count("concurrency", concurrency) > MOST_UNITS:
        raise InvalidJob(f"concurrency is at most {MOST_UNITS}, not {concurrency}")
    flow = None if rate is None else str(read_rate(rate))
    if rate is None and burst != 1:
        raise InvalidJob("burst belongs to a rate: give rate='100/m', too")
    if count("burst", burst, 1) > MOST_UNITS:
        raise InvalidJob(f"burst is at most {MOST_UNITS}, not {burst}")
    return Quota(name, concurrency, flow, burst if flow else None)


class QuotaClient:
    """The calls on quotas, of which `Coordinator` says what they mean."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def declare(
        self, name: str, concurrency: int | None, rate: str | float | None, burst: int, **acting: Unpack[Acting]
    ) -> bool:  # fmt: skip
        quota = checked(name, concurrency, rate, burst)
        units, period = (None, None) if quota.rate is None else read_rate(quota.rate)
        note = act_of(**acting)
        return quota_declare(self.store, *named(name), quota.concurrency, units, period, quota.burst, note)

    def drop(self, name: str, **acting: Unpack[Acting]) -> bool:
        return quota_drop(self.store, *named(name), act_of(**acting))

    def cool_down(self, name: str, until: datetime | float | str | None, **acting: Unpack[Acting]) -> bool:
        return quota_cool(self.store, check_quota(name), validation.until(until), act_of(**acting))

    def weigh(self, group: str, weight: float, usual: bool, **acting: Unpack[Acting]) -> float:
        """Set the weight of a group; return the one before. `usual`: a group is the text before the first / of keys."""
        if not isinstance(group, str) or (group and not printable(group)):
            raise InvalidJob(f"a group is named by text without control characters, not {shown(group)}")
        if usual and "/" in group:
            raise InvalidJob(
                f"no group is named {group!r}: the group of such keys is {group.partition('/')[0]!r}, the text before "
                "their first /; with Coordinator(fair_by=…) an app names other groups"
            )
        if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0.001 <= weight <= 1000:
            raise InvalidJob(f"weight is a number from 0.001 to 1000, not {shown(weight)}")
        return float(weight_set(self.store, group, f"{weight:g}", act_of(**acting)))

    def weights(self) -> dict[str, float]:
        """The groups whose weight is not 1."""
        pairs = self.store.read("HGETALL", self.store.key("weights"))
        return {text_in(group): float(text_in(text).partition(" ")[0]) for group, text in sorted(pairs.items())}

    def read(self, name: str) -> Quota:
        """Raises UnknownQuota where nobody has declared it, and nothing uses it."""
        prefix, default = named(name)
        if default:
            found = [quota for quota in self.defaults() if quota.name == name]
        else:
            found = [
                quota
                for quota in self.read_many([prefix])
                if quota.declared or quota.default or quota.used or quota.waiting
            ]
        if not found:
            raise self.unknown(name)
        return found[0]

    def page(self, prefix: str, most: int, after: str) -> tuple[list[Quota], str]:
        """The quotas that are declared or in use, by name, and the name behind which the next page begins; "": none."""
        first, last = prefix.encode(), after.encode()
        begin = b"(" + last if last >= first and last else b"[" + first if first else b"-"
        end = b"(" + first + b"\xff" if first else b"+"
        names = self.store.read("ZRANGEBYLEX", self.store.key("quotas"), begin, end, "LIMIT", 0, most + 1)
        found = self.read_many([name.decode() for name in names[:most]])
        return found, found[-1].name if len(names) > most else ""

    def defaults(self) -> list[Quota]:
        """The defaults, the longest prefix first: that order decides."""
        pairs = self.store.read("HGETALL", self.store.key("quota-defaults"))
        rows = [(text_in(name), text_in(text)) for name, text in pairs.items()]
        return [_default(name, text) for name, text in sorted(rows, key=lambda row: (-len(row[0]), row[0]))]

    def read_many(self, names: Sequence[str]) -> list[Quota]:
        pages = (names[at : at + _PAGE] for at in range(0, len(names), _PAGE))
        return [_quota(name, reply) for page in pages
                for name, reply in zip(page, quotas_read.look(self.store, *page), strict=True)]  # fmt: skip

    def check(self, verdict: str, name: str, units: object) -> None:
        """Raise what a step refused for a quota: UnknownQuota for `undeclared`; InvalidJob for `too_many`, where the
        quota has only so many units. Any other verdict is none of a quota.
        """
        if verdict == "undeclared":
            raise self.unknown(name)
        if verdict == "too_many":
            raise InvalidJob(f"uses more units of quota {name!r} than there are: it has {units}")

    def check_uses(self, text: Arg | None) -> None:
        """Raise UnknownQuota, or InvalidJob, where a job with this field `uses` cannot have what it uses. `text`: None:
        it uses nothing. For jobs that are not put in line yet; a submit checks that in its own step.
        """
        if not text:
            return
        uses, lines = uses_in(str(text)), [line.split(" ", 2) for line in str(text).split("\n")]
        open_ = {name for _, flags, name in lines if "o" in flags}
        for quota in self.read_many(list(uses)):
            units = uses[quota.name].units
            if quota.declared is None and quota.default is None and quota.name not in open_:
                raise self.unknown(quota.name)
            if quota.concurrency and units != "all" and units > quota.concurrency:
                self.check("too_many", quota.name, quota.concurrency)

    def unknown(self, name: str) -> UnknownQuota:
        """Make the error for a quota that nobody declared: it names one of a near name."""
        names = self.store.read("ZRANGEBYLEX", self.store.key("quotas"), "-", "+", "LIMIT", 0, _NAMED)
        known = [*map(text_in, names), *(f"{text_in(one)}*" for one in self.store.read(
            "HKEYS", self.store.key("quota-defaults")))]  # fmt: skip
        return UnknownQuota(name, near(name, known))


def _quota(name: str, reply: Sequence[Reply]) -> Quota:
    limit, number, period, burst, declared, prefix, used, users, waiting, rate, cools, cooled = reply
    flow = _rate(text_in(number), text_in(period), text_in(burst))
    return Quota(
        name, limit if isinstance(limit, int) else None, *flow, used, users, waiting, rate / 1000, cools / 1000,
        None if prefix is None else f"{text_in(prefix)}*", act_in(declared or None), act_in(cooled or None),
    )  # fmt: skip


def _rate(number: str, period: str, burst: str) -> tuple[str | None, int | None]:
    if not (number.isdigit() and period.isdigit() and burst.isdigit()):  # none, or a damaged one
        return None, None
    return str(Rate(int(number), int(period))), int(burst)


def _default(prefix: str, text: str) -> Quota:
    bounds, _, act = text.partition(" {")
    limit, number, period, burst = (bounds.split(" ") + [""] * 4)[:4]
    return Quota(
        f"{prefix}*", number_in(limit), *_rate(number, period, burst), declared=act_in(f"{{{act}".encode())
    )  # fmt: skip
