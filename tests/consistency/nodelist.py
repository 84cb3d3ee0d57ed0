"""The checker over the nodelist: processes that change it and LDAP, killed and paused at each of their steps."""

import itertools
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tasks import instants
from tasks.documents.copy import Copy
from tasks.member_node.member import Member
from tasks.nodelist.entries import DATED, MEMBER
from tests.consistency.author import STEPS, Charge, Steps, half, nodelist_of
from tests.consistency.authors import Author, Outside
from tests.consistency.checker import NAMES, Trial
from tests.consistency.members import Members
from tests.consistency.observers import Accepted, Seen
from tests.harness.redis import RedisServer
from tests.harness.slapd import SlapdServer
from tests.harness.waiting import wait_until
from tests.tasks.documents.replica_set import NAME

START = datetime(2024, 1, 1, tzinfo=UTC)
NEVER = instants.full(instants.NEVER)
WRITING = STEPS[3:]


def listed(pattern: Member, number: int) -> list[Member]:
    """So many members, as `stamped` would have left them."""
    about = {"name": instants.full(START), "last_complete_harvest": START, "last_harvested": START, "state": "up"}
    services = tuple(one.model_copy(update={"available": True}) for one in pattern.services)
    whole = pattern.model_copy(update=about | {"services": services})
    return [whole.model_copy(update={"identifier": f"urn:node:m{one}"}) for one in range(number)]


@dataclass
class Asked:
    """An update; `version`: the one that has it, None = unknown, 0 = refused."""

    changes: dict[str, Any]
    why: str
    version: int | None = None


class NodelistTrial(Trial):
    """As `Trial`, on the nodelist itself: three processes that change it, one that refreshes it, and LDAP beside.

    `names`: its members, which are in LDAP. `fatal`: the steps at which authors die.
    """

    def __init__(
        self,
        members: Members,
        server: RedisServer,
        directory: Path,
        seed: int,
        slapd: SlapdServer,
        names: list[str],
        defect: str = "",
        fatal: Sequence[str] = STEPS,
    ) -> None:
        super().__init__(members, server, directory, seed)
        self.slapd, self.names, self.defect = slapd, names, defect
        self.asked: dict[str, Asked] = {}
        self.forgotten: dict[str, list[Any]] = {}  # by entry: of updates of which a Redis that was cut knows no more
        steps = [list(WRITING), list(fatal), list(STEPS)]
        for some in steps:
            self.random.shuffle(some)
        self._writing, self._fatal, self._halting = (itertools.cycle(some) for some in steps)
        charge = self.charge("tester", NAMES[0])
        self.nodelist = nodelist_of(charge, lambda *said: self.hear(*json.loads(json.dumps(said))), Steps())
        self.authors = [Author(self, self.charge(f"w{one}", NAMES[one], pace=self.pace)) for one in range(3)]
        self.refresher = Author(self, self.charge("refresher", NAMES[3], pace=0.5, refreshes=True))
        self.outside = Outside(self)

    def charge(self, name: str, beside: str, **about: Any) -> Charge:
        settings, root = self.members.store.settings, str(self.members.root)
        about |= {"names": tuple(self.names), "defect": self.defect}
        return Charge(settings.url, settings.prefix, NAME, root, self.slapd.account, name, beside, **about)

    def run(self, *what: Any) -> Seen:
        """And no process is left, whatever did not hold."""
        try:
            return super().run(*what)
        finally:
            self.over.set()
            for one in (*self.authors, self.refresher):
                if one.is_alive():
                    one.kill()
                    one.join(10)
            self.nodelist.document.store.close()

    def writers(self) -> list[threading.Thread]:
        self.nodelist.refresh()
        return [*self.authors, self.refresher, self.outside]

    def halves(self, copy: Copy) -> bool:
        listed, dates = copy.entries(MEMBER), copy.entries(DATED)
        return any(half(one["member"], dates[DATED + name.removeprefix(MEMBER)]) for name, one in listed.items())

    def hear(self, what: str, update_id: str, *about: Any) -> None:
        if what == "asked":
            self.asked[update_id] = Asked(*about)
        elif what == "refused":
            self.asked[update_id].version = 0
            self.seen.refused += 1
        else:
            version, since, until = about
            self.asked[update_id].version = version
            self.seen.accepted.append(Accepted(version, 0, self.asked[update_id].changes))
            self.seen.told, self.seen.heard = max(self.seen.told, version), max(self.seen.heard, version)
            if since is not None:
                self.waited(since, until)

    def author_dies(self) -> None:
        self._at(self.random.choice(self.authors), "SIGKILL", next(self._fatal))

    def author_pauses(self) -> None:
        self._pauses(self.random.choice(self.authors), next(self._halting))

    def refresher_dies(self) -> None:
        """As it commits what somebody changed in LDAP; as it writes there: `ldap_stops`."""
        self._at(self.refresher, "SIGKILL", self.random.choice(STEPS[:3]))

    def refresher_pauses(self) -> None:
        """And another refresh goes on: its turn is over."""
        self._pauses(self.refresher, self.random.choice(STEPS[:3]))

    def ldap_stops(self) -> None:
        """For a while; who writes then what is lacking there dies at it."""
        self.refresher.arm("SIGKILL", next(self._writing))
        self.slapd.stop()
        time.sleep(self.random.uniform(0.3, 1.5))
        self.slapd.start()
        wait_until(lambda: self.refresher.reached.is_set() or not self.nodelist.document.behind())

    def ldap_hangs(self) -> None:
        self.slapd.pause()
        time.sleep(self.random.uniform(0.1, 4))
        self.slapd.resume()

    def _at(self, author: Author, signal: str, step: str) -> None:
        self.doing += f" at {step}"
        author.arm(signal, step)
        wait_until(lambda: author.reached.is_set() or self.seen.wrong, 30, f"{author.charge.name} came not to {step}")

    def _pauses(self, author: Author, step: str) -> None:
        self._at(author, "SIGSTOP", step)
        wait_until(author.paused)
        time.sleep(self.random.uniform(0.1, 2))
        self.nodelist.refresh()
        author.resume()

    def cut(self) -> None:
        """While nobody else changes LDAP: who changed a member there just as Redis lost what we did to it may be
        overruled.
        """
        with self.outside.still:
            wait_until(self._refreshed, 20)
            time.sleep(1.1)  # until that is on Redis's disk
            super().cut()
            wait_until(self._refreshed, 20)
            for one in self._unknown():
                for entry, value in one.changes.items():
                    self.forgotten.setdefault(entry, []).append(value)

    def _refreshed(self) -> bool:
        return not self.nodelist.refresh() and not self.nodelist.document.behind()

    def kept(self, final: Copy, told: str) -> None:
        """LDAP ends equal; every update that was made is there, unless a later one or the rules of a merge replaced it.

        The rules: a field that somebody else changed in LDAP is taken from there, and no other; dates go forward, and
        back only where somebody else reset them there.
        """
        source, document = self.nodelist.store, self.nodelist.document
        wait_until(self._refreshed, 20, lambda: str(document.behind()))
        found, ours = source.read(), self.nodelist.listed()
        theirs = {member_id: state.listed for member_id, state in found.states.items()}
        assert not found.bad, told
        assert theirs.keys() == ours.keys() == {*self.names}, told
        different = [(ours[one], theirs[one]) for one in self.names if ours[one] != theirs[one]]
        assert not different, f"{told}LDAP is not equal: {different[:2]}"
        self._by_the_rules(document.fetch(), told)
        for member_id, given in self.outside.descriptions.items():
            assert ours[member_id].member.description == given[-1], f"{told}{member_id} lost what came from outside"
        self.members.agree()

    def _by_the_rules(self, final: Copy, told: str) -> None:
        """All that was committed, one after the other, makes what is there now."""
        state: dict[str, Any] = {}
        reset = set()
        for one in sorted(self._made(), key=lambda one: one.version or 0):
            for entry, value in one.changes.items():
                if entry in state:
                    wrong = self._against_the_rules(entry, state[entry], value, one.why.startswith("changed in "))
                    assert not wrong, f"{told}{entry} in version {one.version}, {one.why}: {wrong}"
                state[entry] = value
                if entry.startswith(DATED) and value["last_harvested"] == NEVER:
                    reset.add(entry.removeprefix(DATED))
        different = {entry for entry, value in final.entries().items() if value != state.get(entry)}
        lost = {entry for entry in different if final.value(entry) not in self.forgotten.get(entry, ())}
        assert not lost, f"{told}{sorted(lost)}"
        assert final.entries().keys() == state.keys(), told
        assert reset == self.outside.reset, f"{told}not reset: {self.outside.reset - reset}"

    def _unknown(self) -> list[Asked]:
        key = self.members.store.key
        names = [update_id for update_id, one in self.asked.items() if one.version is None]
        return [self.asked[one] for one in names if not self.members.store._client.exists(key("update", one))]

    def _made(self) -> list[Asked]:
        """Those of authors that died too."""
        for update_id, one in self.asked.items():
            if one.version is None:
                outcome = self.members.store._client.get(self.members.store.key("update", update_id)) or b""
                verdict, _, version = outcome.decode().partition(" ")
                assert verdict in ("", "committed", "changed", "stale"), outcome
                one.version = int(version) if verdict == "committed" else 0
        return [one for one in self.asked.values() if one.version]

    def _against_the_rules(self, entry: str, before: Any, after: Any, taken_in: bool) -> list[str]:
        """What must not become so."""
        member_id = entry.partition("/")[2]
        if entry.startswith(DATED):
            last, there = before["last_harvested"], after["last_harvested"]
            reset = taken_in and there == NEVER and member_id in self.outside.reset
            forward = there >= last if not taken_in else there == last
            forgotten = self.forgotten.get(entry, ())
            completes = {one["last_complete_harvest"] for one in (before, *forgotten)}
            other = taken_in and after["last_complete_harvest"] not in completes
            wrong = after not in forgotten and (other or not (reset or forward))
            return [f"{before} became {after}"] if wrong else []
        if not taken_in:
            return []
        allowed = {"description": self.outside.descriptions.get(member_id, [])}
        return [
            f"nobody made {name} {there} outside, it was {before['member'][name]}"
            for name, there in _fields(after).items()
            if there != _fields(before)[name]
            and there not in allowed.get(name, ())
            and not any(there == _fields(one)[name] for one in self.forgotten.get(entry, ()))
        ]


def _fields(value: Mapping[str, Any]) -> dict[str, Any]:
    return {**value["member"], "approved": value["approved"]}
