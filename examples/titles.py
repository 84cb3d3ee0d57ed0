"""An index of titles, kept up to date by the catalog's events. It applies each event once, and skips repeats by number.

The titles lie in SQLite, with its full-text search. An object's number is written in the transaction that changes its
title. So the index is right whoever dies, and however often an event comes. A new index catches up from number 0.

Run it: python examples/titles.py
"""

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import httpx
from celery import shared_task
from onemachine import HERE, Machine, until

ROOT = HERE.parent
sys.path.insert(0, str(ROOT))  # of the service

TABLES = """
CREATE TABLE IF NOT EXISTS taken (member, pid, number, PRIMARY KEY (member, pid));
CREATE VIRTUAL TABLE IF NOT EXISTS titles USING fts5 (member UNINDEXED, pid UNINDEXED, title);
"""


@shared_task  # its name is titles.on_object
def on_object(event: dict[str, Any]) -> str:
    """The task that TASKS_ON_OBJECT names."""
    with opened() as index:
        return take(index, event)


@contextmanager
def opened() -> Iterator[sqlite3.Connection]:
    """The index, in a transaction that excludes all others."""
    with closing(sqlite3.connect(os.environ["TITLES"], timeout=30, isolation_level=None)) as index:
        index.executescript(TABLES)
        index.execute("BEGIN IMMEDIATE")
        yield index
        index.execute("COMMIT")


def take(index: sqlite3.Connection, event: dict[str, Any]) -> str:
    of = event["member"], event["pid"]
    taken = index.execute("SELECT number FROM taken WHERE member = ? AND pid = ?", of).fetchone()
    if taken and event["number"] <= taken[0]:
        return "a repeat"
    title = "" if event["kind"] in ("archived", "gone") else title_of(*of)
    index.execute("DELETE FROM titles WHERE member = ? AND pid = ?", of)
    if title:
        index.execute("INSERT INTO titles VALUES (?, ?, ?)", (*of, title))
    index.execute("INSERT OR REPLACE INTO taken VALUES (?, ?, ?)", (*of, event["number"]))
    return "taken"


def title_of(member: str, pid: str) -> str:
    """The title in the member's object now; "" if the member no longer has the object."""
    from tasks.member_node import safe_xml  # the service reads its environment when it is imported
    from tasks.service import service

    listed = service().nodelist.listed()[member].member
    answer = httpx.get(f"{listed.base_url}/v2/object/{quote(pid, safe='')}", timeout=30)
    if answer.status_code == 404:
        return ""
    return safe_xml.text(safe_xml.parse(answer.raise_for_status().content), "dataset/title")


def search(words: str) -> list[str]:
    with opened() as index:
        rows = index.execute("SELECT title FROM titles WHERE titles MATCH ? ORDER BY title", (words,))
        return [title for (title,) in rows]


def main() -> None:
    with Machine() as machine, TemporaryDirectory() as folder:
        os.environ |= {
            "PYTHONPATH": f"{ROOT}:{HERE}", "TITLES": f"{folder}/titles", "TASKS_DATA_DIR": folder,
            "TASKS_REPLICA_DIR": folder, "TASKS_MARGIN": "0", "TASKS_ON_OBJECT": "titles.on_object",
        }  # fmt: skip
        follow(machine, Path(folder))


def follow(machine: Machine, folder: Path) -> None:
    from examples.demo.member_server import MemberServer, Reply, Request
    from tasks import events
    from tasks.app import NODELIST_LABEL, coordinator
    from tasks.nodelist.xml_format import write_nodelist
    from tasks.service import service
    from tasks.sync import synchronize

    def body(request: Request) -> Reply | None:
        if request.path[0] != "object" or len(request.path) == 1:
            return None
        return Reply(f"<eml><dataset><title>{titles[request.path[1]]}</title></dataset></eml>".encode())

    def harvested() -> None:
        member = server.member.identifier
        assert coordinator.wait(synchronize(member, complete=True), 60).state == "succeeded"
        until(lambda: all(event.delivered for event in events.after()))

    titles = {"a": "Rivers of the north", "b": "Lakes and rivers"}
    with MemberServer("urn:node:mnDemo", hook=body) as server:
        for pid in titles:
            server.put(pid)
        (folder / "nodelist.xml").write_bytes(write_nodelist([server.member]))
        machine.workers("tasks", coordinator, "cn")
        until(lambda: NODELIST_LABEL in coordinator.nodes()[0].labels and service().nodelist.listed())
        harvested()
        machine.say(f"two objects are new: {search('rivers')}")
        titles["a"] = "Streams of the north"
        server.put("a")
        server.remove("b")
        harvested()
        machine.say(f"one is changed, one gone: {search('rivers')}, {search('north')}")
        kept = [event._asdict() for event in events.after()]
        machine.say(f"all events again: {[on_object(event) for event in kept]}")
        os.environ["TITLES"] += "-new"
        machine.say(f"a new index from number 0: {[on_object(event._asdict()) for event in events.after(0)]}")
        machine.say(f"it has the same: {search('rivers')}, {search('north')}")


if __name__ == "__main__":
    main()
