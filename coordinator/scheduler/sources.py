"""Sources of entries: functions that beats read each second, and the entries that code stored in Redis."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from coordinator.scheduler.entry import Entry, digest
from coordinator.scheduler.entry_plan import EntryPlan
from coordinator.store.client import Store
from coordinator.store.times import instant
from coordinator.threads import connections_closed

Source = Callable[[], tuple[str, Iterable[Entry]]]
"""A function that returns its version, and its entries, which the beat reads only when the version is new."""

NONE: Mapping[str, str] = {}

logger = logging.getLogger(__name__)


@dataclass
class SourceState:
    """A source as this beat last read it.

    `all`: the plans of all its entries; `plans`: those whose names no earlier source has; `digest`: a hash of `plans`.
    `base`: the digest for which this beat stands in Redis. While `base` and `digest` differ, the source's entries rest.
    `follows`: True while another digest counts.
    """

    name: str
    read: Source
    version: str | None = None
    all: dict[str, EntryPlan] = field(default_factory=dict)
    plans: dict[str, EntryPlan] = field(default_factory=dict)
    digest: str = ""
    base: str = ""
    follows: bool = False
    trouble: str = ""

    @property
    def current(self) -> dict[str, EntryPlan]:
        return self.plans if self.base == self.digest else {}

    @property
    def unknown(self) -> bool:
        """True if Redis must still say from when the entries count."""
        return self.base != self.digest or any(plan.last is None for plan in self.plans.values())

    def again(self, others: Mapping[str, str] = NONE) -> bool:
        """Read the source; True when its version is new. An error changes nothing, and the beat logs it once.

        `others`: the schedules that operators gave entries instead of their own.
        """
        try:
            with connections_closed():
                version, entries = self.read()
                plans = {} if version == self.version else _planned(entries, others)
        except Exception as error:
            if self.trouble != repr(error):
                logger.exception("cannot read the schedule source %s; its %d entries stay", self.name, len(self.all))
            self.trouble = repr(error)
            return False
        self.trouble = ""
        if version == self.version:
            return False
        self.version, self.all = version, {name: plan.after(self.all.get(name)) for name, plan in plans.items()}
        return True

    def settle(self, names: set[str]) -> None:
        """Plan the entries whose names are not among `names`, and add their names to it."""
        for name in self.all.keys() & names:
            logger.error("schedule entry %r of %s is left out: another source has that name", name, self.name)
        self.plans = {name: plan for name, plan in self.all.items() if name not in names}
        self.digest = digest(" ".join(sorted(plan.hash for plan in self.plans.values())))
        names.update(self.plans)

    def replace(self, name: str, plan: EntryPlan) -> None:
        self.all[name] = plan
        if name in self.plans:
            self.plans[name] = plan


class Stored:
    """The entries that code stored by `coordinator.entries.put`. Redis has one version: beats read its changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.version = ""  # '' = nothing was read
        self.all: dict[str, EntryPlan] = {}

    @property
    def current(self) -> dict[str, EntryPlan]:
        return self.all

    def again(self, names: set[str], others: Mapping[str, str]) -> dict[str, EntryPlan | None]:
        """Read what changed. Returns the changed plans by name, None for a removed entry.

        `names`: the names of other sources, which win.
        """
        changed: dict[str, EntryPlan | None] = {}
        version, cursor, *entries = self._store.step("entries_read", self.version, "0")
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
        """Read all entries, and the version of the first page: the beat reads again what changes meanwhile."""
        first, cursor, *entries = self._store.step("entries_read", "", "0")
        while cursor != b"0":
            _, cursor, *more = self._store.step("entries_read", "", cursor)
            entries += more
        return first, entries

    def _plan(
        self, name: str, text: bytes, last: float, names: set[str], others: Mapping[str, str]
    ) -> EntryPlan | None:
        if not text:
            return None
        if name in names:
            logger.error("the stored schedule entry %r is left out: another source has that name", name)
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
