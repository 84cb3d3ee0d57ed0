"""The sources of schedule entries: functions of the app that beats call each second, and entries stored in Redis by
code.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from coordinator.core.store.client import Store
from coordinator.core.store.steps import entries_read
from coordinator.core.store.times import instant
from coordinator.core.threads import connections_closed
from coordinator.scheduler.entry import Entry, digest
from coordinator.scheduler.entry_plan import EntryPlan

Source = Callable[[], tuple[str, Iterable[Entry]]]
"""A function that returns a version and the entries; a beat iterates over the entries only if the version is new.

An object that is called so may have a method `taken`, too, which a beat calls once a second with what it knows of the
last instant of each entry that any beat took.
"""

NONE: Mapping[str, str] = {}


def names_of(sources: Iterable[Source]) -> Iterator[tuple[str, Source]]:
    """Yield each source with its name, the same in all beats: that of the function or class, with `#2` for a second."""
    seen: Counter[str] = Counter()
    for source in sources:
        name = f"{source.__module__}.{getattr(source, '__qualname__', type(source).__qualname__)}"
        seen[name] += 1
        yield f"{name}#{seen[name]}" if seen[name] > 1 else name, source


logger = logging.getLogger(__name__)


@dataclass
class SourceState:
    """A source of entries, and what this beat last read from it. `read`: the function; `version`: None before the
    first.

    `all`: the plans of all entries of the source; `plans`: those without the names that an earlier source has;
    `digest`: a hash of `plans`. `base`: the digest that this beat last confirmed in Redis as current, "" = none: while
    it is not `digest`, no tick of the source is sent. `follows`: True while beats have confirmed another digest.
    `error`: the error of the last read, "" = none.
    """

    name: str
    read: Source
    version: str | None = None
    all: dict[str, EntryPlan] = field(default_factory=dict)
    plans: dict[str, EntryPlan] = field(default_factory=dict)
    digest: str = ""
    base: str = ""
    follows: bool = False
    error: str = ""

    @property
    def current(self) -> dict[str, EntryPlan]:
        return self.plans if self.base == self.digest else {}

    @property
    def unknown(self) -> bool:
        """True if this beat must still learn from Redis, for some entry, the last instant that any beat took."""
        return self.base != self.digest or any(plan.last is None for plan in self.plans.values())

    def again(self, others: Mapping[str, str] = NONE) -> bool:
        """Read the source. Returns True if its version is new. If it raises, the entries stay, and the error is logged
        once.

        `others`: entry -> the schedule that an operator set in place of the entry's own.
        """
        try:
            with connections_closed():
                version, entries = self.read()
                plans = {} if version == self.version else _planned(entries, others)
        except Exception as error:
            if self.error != repr(error):
                logger.exception(
                    "cannot read the schedule source %s; the beat keeps its %d entries",
                    self.name,
                    len(self.all),
                )
            self.error = repr(error)
            return False
        self.error = ""
        if version == self.version:
            return False
        self.version, self.all = version, {name: plan.after(self.all.get(name)) for name, plan in plans.items()}
        return True

    def tell(self) -> None:
        if taken := getattr(self.read, "taken", None):
            taken({name: plan.last for name, plan in self.current.items() if plan.last})

    def settle(self, names: set[str]) -> None:
        """Set `plans` to the entries of this source whose names are not in `names`, and add their names to it. `names`:
        the names of entries of earlier sources.
        """
        for name in self.all.keys() & names:
            logger.error(
                "schedule entry %r of %s is left out: another source has an entry of that name", name, self.name
            )
        self.plans = {name: plan for name, plan in self.all.items() if name not in names}
        self.digest = digest(" ".join(sorted(plan.hash for plan in self.plans.values())))
        names.update(self.plans)

    def replace(self, name: str, plan: EntryPlan) -> None:
        self.all[name] = plan
        if name in self.plans:
            self.plans[name] = plan


class Stored:
    """The entries that code stored in Redis with `coordinator.entries.put`, as this beat has read them.

    All beats read the same Redis, so they need not agree on a version; each reads what changed since its last read.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.version = ""  # of the entries as last read; '' = not read yet
        self.all: dict[str, EntryPlan] = {}

    @property
    def current(self) -> dict[str, EntryPlan]:
        return self.all

    def again(self, names: set[str], others: Mapping[str, str]) -> dict[str, EntryPlan | None]:
        """Read the stored entries that changed. Returns entry -> its new plan, or None for an entry that was removed.

        `names`: names of entries of other sources; a stored entry of such a name is left out. `others`: entry -> the
        schedule that an operator set.
        """
        changed: dict[str, EntryPlan | None] = {}
        version, cursor, *entries = entries_read(self._store, self.version, "0")
        if self.version == "" or cursor == b"":
            changed = dict.fromkeys(self.all)
            version, entries = self._all()
        for name, text, last in entries:
            changed[name.decode()] = self._plan(name.decode(), text, float(last), names, others)
        for name, plan in changed.items():
            if plan is None:
                self.all.pop(name, None)
            else:
                self.all[name] = plan
        self.version = version.decode()
        return changed

    def _all(self) -> tuple[bytes, list[list[bytes]]]:
        """Read all stored entries, page by page. Returns the version at the first page, so that the next read covers
        what changed during this one.
        """
        first, cursor, *entries = entries_read(self._store, "", "0")
        while cursor != b"0":
            _, cursor, *more = entries_read(self._store, "", cursor)
            entries += more
        return first, entries

    def _plan(
        self, name: str, text: bytes, last: float, names: set[str], others: Mapping[str, str]
    ) -> EntryPlan | None:
        if not text:
            return None
        if name in names:
            logger.error("the stored schedule entry %r is left out: another source has an entry of that name", name)
            return None
        try:
            plan = EntryPlan(Entry.from_json(text), others.get(name, ""))
        except Exception as error:
            logger.error("the stored schedule entry %r is left out: %s", name, error)
            return None
        plan = plan.after(self.all.get(name))
        if last:
            plan.count_from(instant(last))
        return plan

    def replace(self, name: str, plan: EntryPlan) -> None:
        self.all[name] = plan


def _planned(entries: Iterable[Entry], others: Mapping[str, str]) -> dict[str, EntryPlan]:
    plans = {}
    for entry in entries:
        try:
            plans[entry.name] = EntryPlan(entry, others.get(entry.name, ""))
        except Exception as error:
            logger.error("schedule entry %r is left out: %s", getattr(entry, "name", entry), error)
    return plans
