"""How far behind the commits is LDAP? Dates of 100 members, committed on two nodes, then written to a real slapd.

A commit and the whole of `harvested` (commit and write) one after another; then 20 writers at once, who only commit,
and one refresh that writes what LDAP lacks.
"""

import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.servers import redis_server
from coordinator.replica import Replica
from coordinator.replicas import Document
from coordinator.settings import Settings
from coordinator.store import Store
from tasks.catalog import Dates
from tasks.ldapsource import LdapSource
from tasks.memberserver import MemberServer
from tasks.replicated import ReplicatedNodelist
from tests.directory import DEPLOY, SlapdServer, ldif_of

MEMBERS, WRITERS = 100, 20
BEGAN = datetime(2025, 1, 1, tzinfo=UTC)


def main() -> None:
    logging.disable(logging.INFO)
    with redis_server("--appendonly", "yes") as url, tempfile.TemporaryDirectory() as folder:
        store, slapd = Store(Settings(url=url)), SlapdServer(Path(folder, "slapd"))
        ids = [f"urn:node:mn{number:03}" for number in range(MEMBERS)]
        with MemberServer() as server:
            members = [server.member.model_copy(update={"identifier": node_id}) for node_id in ids]
        slapd.load((DEPLOY / "base.ldif").read_text(), ldif_of(members))
        slapd.start()
        replicas = [Replica(store, "nodelist", f"cn{number}", Path(folder, "copies")) for number in (1, 2)]
        for replica in replicas:
            replica.start()
        nodelist = ReplicatedNodelist(Document(store, "nodelist"), LdapSource(slapd.settings()))
        nodelist.refresh()
        report(nodelist, ids)
        for replica in replicas:
            replica.stop()
        slapd.stop()


def report(nodelist: ReplicatedNodelist, ids: list[str]) -> None:
    document = nodelist.document

    def commit(node_id: str) -> None:
        document.update({f"dates/{node_id}": {"last_harvested": _next(), "last_complete_harvest": None}})

    def harvested(node_id: str) -> None:
        nodelist.harvested(node_id, Dates(datetime.fromisoformat(_next())), fence=time.time_ns() // 1000)

    _say("commit alone", [_timed(commit, node_id) for node_id in ids])
    nodelist.refresh()
    _say("commit, then LDAP", [_timed(harvested, node_id) for node_id in ids])
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


def _timed(call: Callable[[str], None], node_id: str) -> float:
    began = time.perf_counter()
    call(node_id)
    return (time.perf_counter() - began) * 1000


def _say(what: str, times: list[float]) -> None:
    print(f"{what:18} p50 {statistics.median(times):6.2f} ms   p99 {sorted(times)[-2]:6.2f} ms")


if __name__ == "__main__":
    main()
