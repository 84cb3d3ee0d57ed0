"""Whoever changes the nodelist, as a process of its own: `python -m tests.consistency.author JSON`, see `Charge`.

A line on its stdin, "<number> <signal> <step>": it sends itself that signal when it comes to that step, once for each
number; they grow. At the end of its stdin it ends. It says in lines of JSON what it asks for and is told:

    ["ready"]  ["round"]  ["at", signal, step]  ["asked", update, changes, why]  ["refused", update]
    ["told", update, version, since, until]      s of the machine's clock; null where it was signalled between
"""

import itertools
import json
import os
import random
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator.errors import StoreUnavailable
from coordinator.settings import Settings as Own
from coordinator.store.client import Store
from tasks import instants
from tasks.catalog import catalog
from tasks.documents import document, replica_set
from tasks.documents.document import Document
from tasks.documents.errors import Changed, StaleFence, UpdatePending
from tasks.documents.on_disk import Copies
from tasks.nodelist.entries import DATED, MEMBER
from tasks.nodelist.ldap.connection import Connection
from tasks.nodelist.ldap.store import LdapStore
from tasks.nodelist.protocol import Dates
from tasks.nodelist.reconcile import Reconciler
from tasks.nodelist.replicated import ReplicatedNodelist
from tasks.nodelist.stores import Listed, NodelistStoreAway, State
from tasks.settings import Settings

STEPS = ("before", "asked", "committed", "intended", "half", "written", "noted")
"""Before it asks for its update; as members prepare it; it is committed; LDAP is about to be written; between two
operations there; LDAP has it; so it is noted, and is listed as pending still."""

FORGOTTEN = "forgotten"
SKIPS, FORGETS = "skips a write", "forgets what is pending"
Say = Callable[..., None]


@dataclass
class Charge:
    """`account`: settings of LDAP. `beside`: whose copies it reads. `defect`: SKIPS or FORGETS, planted."""

    url: str
    prefix: str
    document: str
    root: str
    account: dict[str, Any]
    name: str
    beside: str
    seed: str = ""
    names: tuple[str, ...] = ()
    refreshes: bool = False
    pace: float = 0.0
    defect: str = ""


class Steps:
    """Those of this process; each is passed unless a signal was asked for at it."""

    def __init__(self, say: Say = lambda *_: None) -> None:
        self._say = say
        self._armed = ("", "")
        self._last = 0
        self.signals = 0

    def arm(self, number: str, signal: str, step: str) -> None:
        if int(number) > self._last:
            self._last, self._armed = int(number), (signal, step)

    def reach(self, step: str) -> None:
        name, wanted = self._armed
        if step == wanted:
            self._armed = "", ""
            self.signals += 1
            self._say("at", name, step)
            os.kill(os.getpid(), getattr(signal, name))


class Told(Document):
    """Says what is asked for, and what it is told."""

    def __init__(self, store: Store, name: str, copies: Copies, say: Say, steps: Steps) -> None:
        super().__init__(store, name, copies)
        self._say = say
        self._steps = steps

        def listened(*args: Any) -> bytes | None:
            steps.reach("asked")
            return replica_set.listen(*args)

        document.listen = listened

    def update(self, changes: Mapping[str, Any], **about: Any) -> int:
        if not changes:
            return super().update(changes, **about)
        update_id, began, signals = uuid.uuid4().hex, time.monotonic(), self._steps.signals
        self._say("asked", update_id, changes, about["why"])
        self._steps.reach("before")
        try:
            version = super().update(changes, **about, update_id=update_id)
        except (StaleFence, Changed):
            self._say("refused", update_id)
            raise
        whole = signals == self._steps.signals
        self._say("told", update_id, version, began if whole else None, time.monotonic())
        self._steps.reach("committed")
        return version

    def followed(self, entry: str, version: int) -> bool:
        self._steps.reach("noted")
        return super().followed(entry, version)


class Stepwise(Connection):
    """Comes to a step between the first two operations of a write."""

    def __init__(self, settings: Settings, steps: Steps) -> None:
        super().__init__(settings)
        self._steps = steps
        self.operations = 0

    def _changed(self, *args: Any) -> str:
        if self.operations == 1:
            self._steps.reach("half")
        csn = super()._changed(*args)
        self.operations += 1
        return csn


class Written(LdapStore):
    """`skipping`: the planted defect, each third write is told, not made."""

    def __init__(self, settings: Settings, steps: Steps, skipping: bool = False) -> None:
        super().__init__(settings)
        self._steps = steps
        self._connection = self._directory._connection = Stepwise(settings, steps)
        self._skipping = skipping
        self._writes = itertools.count(1)

    def _write(self, member_id: str, base: State | None, wanted: Listed | None, whole: bool) -> State | None:
        self._steps.reach("intended")
        if self._skipping and base and wanted and next(self._writes) % 3 == 0:
            return State(wanted, base.token)
        self._connection.operations = 0
        state = super()._write(member_id, base, wanted, whole)
        self._steps.reach("written")
        return state


class Forgetful(Reconciler):
    """The planted defect: it takes a pending change off the list before it writes it, or notes that it will."""

    steps: Steps

    def write(self, names: Sequence[str]) -> dict[str, str]:
        for entry, version in self.document.behind(*(each + one for one in names for each in (MEMBER, DATED))).items():
            self.document.followed(entry, version)
        self.steps.reach(FORGOTTEN)
        return super().write(names)


def nodelist_of(charge: Charge, say: Say, steps: Steps) -> ReplicatedNodelist:
    copies = Copies(Path(charge.root) / charge.beside, charge.document)
    document = Told(Store(Own(url=charge.url, prefix=charge.prefix)), charge.document, copies, say, steps)
    nodelist_store = Written(Settings(**charge.account, ldap_timeout=2), steps, charge.defect == SKIPS)
    nodelist = ReplicatedNodelist(document, nodelist_store, charge.name)
    if charge.defect == FORGETS:
        nodelist.reconciler = forgetful = Forgetful(document, nodelist_store, charge.name)
        forgetful.steps = steps
    return nodelist


def stamped(state: str) -> Callable[[Listed | None], Listed | None]:
    """An operator's change in both of a member's entries, and in several of LDAP's: all of them say the same."""
    at = instants.floor(instants.now())

    def to(one: Listed | None) -> Listed | None:
        assert one is not None
        services = tuple(each.model_copy(update={"available": state == "up"}) for each in one.member.services)
        fields = {"state": state, "services": services, "name": instants.full(at), "last_complete_harvest": at}
        return one.model_copy(update={"member": one.member.model_copy(update=fields)})

    return to


def half(about: Mapping[str, Any], dates: Mapping[str, Any]) -> bool:
    """Is not all of what `stamped` changes in an entry `member/…` and its `dates/…` there?"""
    states = {service["available"] for service in about["services"]}
    return about["name"] != dates["last_complete_harvest"] or states != {about["state"] == "up"}


def act(nodelist: ReplicatedNodelist, charge: Charge, chance: random.Random) -> None:
    with suppress(StoreUnavailable, UpdatePending, NodelistStoreAway, StaleFence, Changed, catalog.Superseded):
        if charge.refreshes:
            nodelist.refresh()
        elif chance.random() < 0.5:
            dates, name = Dates(instants.now(), None), chance.choice(charge.names)
            nodelist.harvested(name, dates, fence=nodelist.document.fence())
            nodelist.reconciler.follow(name)  # as a node does
        else:
            nodelist.change(chance.choice(charge.names), stamped(chance.choice(("up", "down"))), why="by hand")


def main() -> None:
    charge = Charge(**json.loads(sys.argv[1]))
    over = threading.Event()

    def say(*what: object) -> None:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

    steps = Steps(say)
    nodelist, chance = nodelist_of(charge, say, steps), random.Random(charge.seed)

    def listen() -> None:
        for line in sys.stdin:
            steps.arm(*line.split())
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    say("ready")
    while not over.wait(chance.uniform(0, charge.pace)):
        act(nodelist, charge, chance)
        say("round")


if __name__ == "__main__":
    main()
