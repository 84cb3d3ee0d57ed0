"""A member of a replica set: the thread that keeps this machine's copies of a document (beside the warden, in a beat).

It reports what lies on its disk, and does what it is told: prepare a version, note a commit, fetch what it missed, or
put forward a Redis that lost its end. Each report may be repeated; between any two the process may die: what lies on
the disk is looked at anew. A disk that cannot be written puts it out of the replica set, until it can.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from kombu.utils.json import dumps, loads

from coordinator.copies import Copies, Copy, changed, checksum
from coordinator.errors import CoordinatorError, StoreRefused, StoreUnavailable
from coordinator.replicas import Document
from coordinator.store import Store

logger = logging.getLogger(__name__)

SILENCE_MS = 2000
TICK = 0.5
_PAUSE = 0.5


class Replica:
    """One member, whose copies are in `<root>/<member>`. `several`: where another process keeps those already, it takes
    the name `<member>.2`, and so on.
    """

    def __init__(self, store: Store, document: str, member: str, root: Path, several: bool = False) -> None:
        self.store = Store(store.settings)
        self.member = member
        self.document = Document(self.store, document)
        self.copies = Copies(root / member, document)
        self._root = root
        self._names = (f"{member}.{number}" for number in itertools.count(2)) if several else iter(())
        self._committed = self._prepared = Copy(0, "", {})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.run, name=f"replica-{document}", daemon=True)
        self._lock: IO[str] | None = None
        self._trouble = ""
        self._notices: Any = None
        self._acts: dict[bytes, Callable[[int, str, bytes], None]] = {
            b"prepare": self._prepare,
            b"commit": self._commit,
            b"behind": self._fetch,
            b"ahead": self._restore,
        }

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(3)

    def run(self) -> None:
        while not self._stop.is_set():
            try:
                if self.begin():
                    self._subscribe()
                    while not self._stop.is_set() and self.step():
                        pass
                    self._said("")
                self._wait()
            except CoordinatorError as error:
                self._said(str(error))
                self._rest()
            except OSError as error:
                self._said(f"its disk cannot be written: {error}")
                self._withdraw()
                self._let_go()
                self._rest()
            except Exception:
                logger.exception("replica of %s on %s", self.document.name, self.member)
                self._rest()
        self._withdraw()
        self._let_go()
        self.store.close()

    def step(self) -> bool:
        """One report, and what it asks for. Is there more to do?"""
        known, ready = self._committed, self._prepared
        args = (known.version, known.sha, ready.version, ready.sha, SILENCE_MS)
        what, version, sha, following, updates, out = self.store.run(
            "document_report", self.document.name, self.member, *args
        )
        for other in out:
            logger.warning(
                "document %s: %s was silent and is put out of its replica set", self.document.name, other.decode()
            )
        if act := self._acts.get(what):
            act(int(following or 0) if what == b"prepare" else int(version), sha.decode(), updates)
        return what in self._acts

    def begin(self) -> bool:
        """Take the folder, and look what lies there. False: another process keeps it."""
        if self._lock is not None:
            return True
        while (lock := self.copies.lock()) is None:
            following = next(self._names, None)
            if following is None:
                self._said(f"another process keeps {self.copies.folder}")
                return False
            self.member, self.copies = following, Copies(self._root / following, self.document.name)
        self._lock = lock
        version, sha = self.copies.committed()
        self._committed = self.copies.read(version, sha) or Copy(0, "", {})
        later = [self.copies.read(one) for one in self.copies.versions() if one > self._committed.version]
        self._prepared = next((copy for copy in reversed(later) if copy), Copy(0, "", {}))
        return True

    def _prepare(self, version: int, sha: str, updates: bytes) -> None:
        state = changed(self._committed.state, loads(updates))
        self._prepared = Copy(version, self.copies.write(version, state), state)

    def _commit(self, version: int, sha: str, updates: bytes) -> None:
        self.copies.commit(version, sha)
        self._committed, self._prepared = self._prepared, Copy(0, "", {})

    def _fetch(self, version: int, sha: str, updates: bytes) -> None:
        found = self.document.fetch()
        if found.version < version:
            return  # Redis lost its end since it answered: what lies here is needed
        sha = checksum(self.document.name, found.version, found.state)
        if found.version and found.sha not in ("-", sha):
            raise CoordinatorError(f"version {found.version} in Redis is not what was committed")
        for one in self.copies.versions():
            if one > found.version:
                self.copies.drop(one)
        if found.version:
            self.copies.write(found.version, found.state)
            self.copies.commit(found.version, sha)
        self._committed, self._prepared = Copy(found.version, sha, found.state), Copy(0, "", {})

    def _restore(self, version: int, sha: str, updates: bytes) -> None:
        latest = max(self._committed, self._prepared, key=lambda copy: copy.version)
        parts = [part for pair in latest.state.items() for part in pair]
        done = self.store.run("document_restore", self.document.name, self.member, latest.version, latest.sha, *parts)
        if done:
            logger.warning("document %s: Redis was put forward again to version %d", self.document.name, latest.version)
            self.copies.commit(latest.version, latest.sha)
            self._committed, self._prepared = latest, Copy(0, "", {})

    def _subscribe(self) -> None:
        """To news of the document, and to a channel of its own, by which others see that this process lives."""
        name = self.document.name
        if self._notices is None:
            client = self.store.connect(self.store.settings.timeout)
            self._notices = self.store.call(lambda: client.pubsub(ignore_subscribe_messages=True))
            own = self.store.key("member", name, self.member)
            self.store.call(lambda: self._notices.subscribe(self.store.key("replica", name), own))

    def _wait(self) -> None:
        """Until there is news, or half a second."""
        if self._notices is None:
            self._stop.wait(TICK)
            return
        notice = self.store.call(lambda: self._notices.get_message(timeout=TICK))
        what, _, look_id = notice["data"].decode().partition(" ") if notice else ("", "", "")
        if what == "look" and self._lock is not None:
            self._answer(look_id)

    def _answer(self, look_id: str) -> None:
        """Say what lies on the disk now."""
        version, noted = self.copies.committed()
        lies = self.copies.read(version)
        sha, key = lies.sha if lies else "", self.store.key("told", look_id)

        def tell() -> None:
            both = self.store.client.pipeline(transaction=True)
            both.rpush(key, dumps([self.member, version, noted, sha]))
            both.expire(key, 60)
            both.execute()

        self.store.call(tell)
        if noted != sha:
            logger.error(
                "document %s on %s: the copy of version %d is damaged", self.document.name, self.member, version
            )
            self._committed = Copy(0, "", {})  # so that the next report has it fetched

    def _rest(self) -> None:
        if self._notices is not None:
            self._notices.close()
            self._notices = None
        self._stop.wait(_PAUSE)

    def _withdraw(self) -> None:
        if self._lock is None:
            return  # another process is the member
        with suppress(StoreUnavailable, StoreRefused):  # then it is put out for its silence
            self.store.run("document_leave", self.document.name, self.member)

    def _let_go(self) -> None:
        """Of the folder: another may be there by now."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _said(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            logger.warning("document %s on %s: %s", self.document.name, self.member, trouble)
        self._trouble = trouble
