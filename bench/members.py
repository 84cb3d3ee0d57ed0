"""A federation of 1,000 members, one harvest of each a minute: how much processor time does it take, with each store?

The real service: two nodes of two processes, two beats, Redis; an XML document or a real slapd as the permanent store
of the nodelist. Each harvest lists one page, fetches what is new since the last one, and commits new dates. One member
server in a process of its own answers for all members; its time does not count.

`--members N`, `--seconds N` (of the window that is measured, after as long a start), `--store xml|ldap`.
"""

import argparse
import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import psutil
from sqlalchemy import func, select

from bench import amount
from bench.harvest import member
from tasks import instants
from tasks.app import NODELIST
from tasks.catalog.catalog import Catalog
from tasks.catalog.schema import members as runs
from tasks.documents.document import Document
from tasks.local.machine import Machine, Processes
from tasks.member_node.member import Member, MemberSchedule
from tasks.nodelist.entries import DATED
from tasks.nodelist.xml_format import write_nodelist
from tasks.settings import Settings
from tests.harness.slapd import DEPLOY, SlapdServer, ldif_of
from tests.harness.waiting import wait_until

MINUTE = 60
MEMBERS, SECONDS = amount((1000, MINUTE), (60, 1))  # 60: one at each second
NODES, SLOTS, BEATS = amount((2, 2, 2), (1, 1, 1))
CHANGES = 2 / MINUTE  # objects a second that are new at the member


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.members")
    parser.add_argument("--members", type=int, default=MEMBERS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--store", choices=("xml", "ldap"))
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    for store in (given.store,) if given.store else amount(("xml", "ldap"), ("ldap",)):
        one(store, given.members, given.seconds)


def one(store: str, number: int, seconds: float) -> None:
    with member(1, CHANGES) as described, tempfile.TemporaryDirectory() as folder:
        listed = federation(Member.model_validate_json(described), number)
        data = Path(folder, "data")
        with permanent(store, Path(folder), data, listed) as extra, machine(data, extra) as here:
            begin(here, data, seconds)
            report(store, here, data, number / MINUTE, seconds)


def federation(pattern: Member, number: int) -> list[Member]:
    """Members, a sixtieth of them at each second of the minute, each last harvested five minutes ago."""
    ago = instants.floor(instants.now() - timedelta(minutes=5))

    def each(place: int) -> Member:
        often = MemberSchedule(sec=str(place % MINUTE), min="*", hour="*", mday="*", mon="*", wday="?", year="*")
        about = {"identifier": f"urn:node:mn{place:05}", "schedule": often, "last_harvested": ago}
        return pattern.model_copy(update=about)

    return [each(place) for place in range(number)]


@contextmanager
def permanent(store: str, folder: Path, data: Path, listed: list[Member]) -> Iterator[Mapping[str, str]]:
    """Fill a store with these members, and yield its settings."""
    data.mkdir()
    if store == "xml":
        (data / "nodelist.xml").write_bytes(write_nodelist(listed))
        yield {}
        return
    slapd = SlapdServer(folder / "slapd")
    slapd.load((DEPLOY / "base.ldif").read_text(), ldif_of(listed))
    slapd.start()
    try:
        yield {f"TASKS_{name.upper()}": str(value) for name, value in slapd.account.items()}
    finally:
        slapd.__exit__()  # the machine may have ended it: it ends all our processes


@contextmanager
def machine(data: Path, extra: Mapping[str, str]) -> Iterator[Machine]:
    os.environ.pop("COORDINATOR_URL", None)
    with Machine(Processes(data, NODES, SLOTS, BEATS), extra) as here:
        yield here


def begin(here: Machine, data: Path, seconds: float) -> None:
    """Wait until harvests run, and then for the window, so that one-time work is done."""
    until(here, lambda: len(here.nodes()) == NODES and Document(here.coordinator.store, NODELIST).pointer()[0], 120)
    until(here, lambda: ran(data, instants.NEVER) > 0, 120)
    stay(here, seconds)


def report(store: str, here: Machine, data: Path, needed: float, seconds: float) -> None:
    document = Document(here.coordinator.store, NODELIST)
    began, dates, before = instants.now(), document.fetch().entries(DATED), spent()
    stay(here, seconds)
    took, after = (instants.now() - began).total_seconds(), spent()
    moved = sum(value != dates[entry] for entry, value in document.fetch().entries(DATED).items()) / took
    used = {role: (after[role] - before[role]) / took for role in after}
    rate = ran(data, began) / took
    waiting = len(document.behind())
    total = sum(used.values())
    each = total / rate if rate else 0.0
    print(
        f"{store:5} {rate:5.1f} harvests/s of {needed:.1f}, new dates {moved:.1f}/s   {total:.2f} cores   "
        f"{each * 1000:.0f} ms for each: {each * needed:.2f} cores for all   "
        f"the store lacks {waiting}"
    )
    print("      cores: " + ", ".join(f"{role} {one:.2f}" for role, one in sorted(used.items())), flush=True)


def until(here: Machine, condition: Callable[[], object], seconds: float) -> None:
    def look() -> object:
        here.step()
        return condition()

    wait_until(look, seconds)


def stay(here: Machine, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        here.step()
        time.sleep(0.2)


def ran(data: Path, since: datetime) -> int:
    """The members whose last run ended since that instant."""
    query = select(func.count()).where(runs.c.ran_at >= since, runs.c.outcome == "succeeded")
    with Catalog(Settings(data_dir=data)).engine.connect() as connection:
        return connection.execute(query).scalar_one()


def spent() -> Counter[str]:
    """Seconds of processor time, by kind of process."""
    found: Counter[str] = Counter()
    for process in psutil.Process().children(recursive=True):
        line, times = " ".join(process.cmdline()), process.cpu_times()
        role = next((role for word, role in ROLES.items() if word in line), "other")
        found[role] += times.user + times.system
    del found["member server"]
    return found


ROLES = {
    "member_server": "member server",
    "slapd": "slapd",
    "redis-server": "redis",
    "valkey": "redis",
    "coordinator.core.maintenance": "maintenance",
    "coordinator.core.supervisor": "supervisors",
    "beat": "beats",
    "worker": "workers",
}


if __name__ == "__main__":
    main()
