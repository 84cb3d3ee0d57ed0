"""Those who change the nodelist in a trial: processes that are signalled at their steps, and somebody outside."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import threading
import time
from contextlib import suppress
from dataclasses import asdict, replace
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import ldap

from tests.consistency.author import Charge
from tests.consistency.members import Killable
from tests.harness.slapd import dn
from tests.harness.warm import start

if TYPE_CHECKING:
    from tests.consistency.nodelist import NodelistTrial


class Author(threading.Thread, Killable):
    """Hears what its process says, and starts it again when it is killed."""

    def __init__(self, trial: NodelistTrial, charge: Charge) -> None:
        super().__init__(daemon=True)
        self.trial = trial
        self.charge = charge
        self.there, self.reached = threading.Event(), threading.Event()
        self._wanted: tuple[str, ...] = ()
        self._number = 0

    def run(self) -> None:
        for number in itertools.count():
            charge = replace(self.charge, seed=f"{self.trial.seed} {self.charge.name} {number}")
            argv = ["-m", "tests.consistency.author", json.dumps(asdict(charge))]
            said = self.trial.members.root / f"{charge.name}.log"
            with said.open("ab") as log:
                self.process = start(argv, stdin=PIPE, stdout=PIPE, stderr=log)
            with self.process as process:
                assert process.stdin
                assert process.stdout
                for line in process.stdout:
                    self.hear(*json.loads(line))
                    if self.trial.enough() and not process.stdin.closed:
                        process.stdin.close()
                self.there.clear()
            if process.returncode not in (0, -signal.SIGKILL):
                self.trial.seen.wrong.append(f"{charge.name} ended: {said.read_text()[-1000:]}")
            if self.trial.enough():
                return

    def hear(self, what: str, *about: Any) -> None:
        if what == "ready":
            self.there.set()
            self._tell()
        elif what == "at" and about == self._wanted:
            self._wanted = ()
            self.reached.set()
        elif what not in ("at", "round"):
            self.trial.hear(what, *about)

    def arm(self, name: str, step: str) -> None:
        """Have its process send itself the signal of that name there; the next one, where this one dies before."""
        self.reached.clear()
        self._number, self._wanted = self._number + 1, (name, step)
        self._tell()

    def _tell(self) -> None:
        if self.there.is_set() and self._wanted:
            assert self.process.stdin
            with suppress(ValueError, OSError):  # it died, or was told to end
                os.write(self.process.stdin.fileno(), " ".join((str(self._number), *self._wanted, "\n")).encode())


class Outside(threading.Thread):
    """Somebody's ldapmodify now and then: another description, or a member's dates reset."""

    def __init__(self, trial: NodelistTrial) -> None:
        super().__init__(daemon=True)
        self.trial = trial
        self.random = random.Random(f"{trial.seed} outside")
        self.descriptions: dict[str, list[str]] = {}
        self.reset: set[str] = set()
        self.still = threading.Lock()

    def run(self) -> None:
        for number in itertools.count():
            time.sleep(self.random.uniform(0.1, 0.4))  # its own rhythm
            if self.trial.enough():
                return
            with self.still:
                self.change(self.random.choice(self.trial.names), number)

    def change(self, member_id: str, number: int) -> None:
        """Noted before it is tried; what fails is tried again, so the last one is there."""
        if number % 5 == 4:
            self.reset.add(member_id)
            change = {"d1NodeLastHarvested": "1900-01-01T00:00:00.000+00:00"}
        else:
            self.descriptions.setdefault(member_id, []).append(f"outside {number}")
            change = {"d1NodeDescription": f"outside {number}"}
        while True:
            try:
                return self.trial.slapd.replace(dn(member_id), **change)
            except ldap.LDAPError:
                time.sleep(0.05)
