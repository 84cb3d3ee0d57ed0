"""How far is LDAP behind the commits? Two nodes commit dates of 100 members, which a real slapd gets.

First one writer commits, then it calls `harvested` and writes as a node does. Then 20 writers commit at the same time,
and one refresh writes everything that LDAP lacks.
"""

import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench import amount
from bench.servers import redis_server
from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from examples.demo.member_server import MemberServer
from tasks.documents.document import Document
from tasks.documents.replica import Replica
from tasks.nodelist.ldap.store import LdapStore
from tasks.nodelist.protocol import Dates
from tasks.nodelist.replicated import ReplicatedNodelist
from tests.harness.slapd import DEPLOY, SlapdServer, ldif_of

MEMBERS, WRITERS = amount((100, 20), (2, 2))
BEGAN = datetime(2025, 1, 1, tzinfo=UTC)


def main() -> None:
    logging.disable(logging.INFO)
    with redis_server("--appendonly", "yes") as url, tempfile.TemporaryDirectory() as folder:
        store, slapd = Store(Settings(url=url)), SlapdServer(Path(folder, "slapd"))
        ids = [f"urn:node:mn{number:03}" for number in range(MEMBERS)]
        with MemberServer() as server:
            members = [server.member.model_copy(update={"identifier": member_id}) for member_id in ids]
        slapd.load((DEPLOY / "base.ldif").read_text(), ldif_of(members))
        slapd.start()
        replicas = [Replica(store, "nodelist", f"cn{number}", Path(folder, "copies")) for number in (1, 2)]
        for replica in replicas:
            replica.start()
        nodelist = ReplicatedNodelist(Document(store, "nodelist"), LdapStore(slapd.settings()))
        nodelist.refresh()
        report(nodelist, ids)
        for replica in replicas:
            replica.stop()
        slapd.stop()


def report(nodelist: ReplicatedNodelist, ids: list[str]) -> None:
    document = nodelist.document

    def commit(member_id: str) -> None:
        document.update({f"dates/{member_id}": {"last_harvested": _next(), "last_complete_harvest": None}})

    def harvested(member_id: str) -> None:
        nodelist.harvested(member_id, Dates(datetime.fromisoformat(_next())), fence=time.time_ns() // 1000)
        nodelist.reconciler.write_back(member_id)

    _say("commit alone", [_timed(commit, member_id) for member_id in ids])
    nodelist.refresh()
    _say("commit, then LDAP", [_timed(harvested, member_id) for member_id in ids])
    began = time.perf_counter()
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(commit, ids * 5))
    seconds = time.perf_counter() - began
    lacks, began = len(document.behind()), time.perf_counter()
    nodelist.refresh()
    rate = lacks / (time.perf_counter() - began)
    print(
        f"{WRITERS} writers: {len(ids) * 5 / seconds:.0f} commits/s; LDAP then lacks {lacks}, written at {rate:.0f}/s"
    )


_SAID = iter(range(10**9))


def _next() -> str:
    return (BEGAN + timedelta(milliseconds=next(_SAID))).isoformat()


def _timed(call: Callable[[str], None], member_id: str) -> float:
    began = time.perf_counter()
    call(member_id)
    return (time.perf_counter() - began) * 1000


def _say(what: str, times: list[float]) -> None:
    print(f"{what:18} p50 {statistics.median(times):6.2f} ms   p99 {sorted(times)[-2]:6.2f} ms")


if __name__ == "__main__":
    main()
