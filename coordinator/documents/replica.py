"""A member of a replica set: the thread of a warden or a beat that keeps this machine's copies of a document.

The member reports what lies on its disk, and Redis answers what to do:

    prepare  write the next version to the disk
    commit   note that the prepared version is committed
    behind   fetch the committed version from Redis
    ahead    Redis lost its last writes: put it forward from this disk

A member may repeat each report. After its death the next process on this disk looks at the files anew. A member that
cannot write its disk leaves the replica set until it can.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

from kombu.utils.json import dumps, loads

from coordinator.documents.copies import Copies, Copy, changed, checksum
from coordinator.documents.document import Document
from coordinator.errors import CoordinatorError, StoreRefused, StoreUnavailable
from coordinator.store.client import Store
from coordinator.threads import StoppableThread

logger = logging.getLogger(__name__)

SILENCE_MS = 2000
TICK = 0.5
_PAUSE = 0.5


class News(Protocol):
    """The part of redis-py's PubSub that is used here."""

    def subscribe(self, *channels: str) -> None: ...

    def get_message(self, *, timeout: float) -> Mapping[str, bytes] | None: ...

    def close(self) -> None: ...


class Replica(StoppableThread):
    """One member, with its copies in `<root>/<member>`.

    `several`: while another process keeps those already, this one takes the name `<member>.2`, and so on.
    """

    def __init__(self, store: Store, document: str, member: str, root: Path, several: bool = False) -> None:
        super().__init__(f"replica-{document}", 3.0)
        self.store = Store(store.settings)
        self.member = member
        self.document = Document(self.store, document)
        self.copies = Copies(root / member, document)
        self._root = root
        self._names = (f"{member}.{number}" for number in itertools.count(2)) if several else iter(())
        self._committed = self._prepared = Copy(0, "", {})
        self._lock: IO[str] | None = None
        self._trouble = ""
        self._news: News | None = None
        self._acts: dict[bytes, Callable[[int, str, bytes], None]] = {
            b"prepare": self._prepare,
            b"commit": self._commit,
            b"behind": self._fetch,
            b"ahead": self._restore,
        }

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                if self.begin():
                    self._subscribe()
                    while not self.stopping.is_set() and self.step():
                        pass
                    self._warn("")
                self._wait()
            except CoordinatorError as error:
                self._warn(str(error))
                self._rest()
            except OSError as error:
                self._warn(f"cannot write its disk: {error}")
                self._withdraw()
                self._unlock()
                self._rest()
            except Exception:
                logger.exception("replica of %s on %s", self.document.name, self.member)
                self._rest()
        self._withdraw()
        self._unlock()
        self.store.close()

    def step(self) -> bool:
        """Report once, and do what Redis answers. Returns whether there was something to do."""
        known, ready = self._committed, self._prepared
        args = (known.version, known.sha, ready.version, ready.sha, SILENCE_MS)
        what, version, sha, following, updates, out = self.store.step(
            "document_report", self.document.name, self.member, *args
        )
        for other in out:
            logger.warning(
                "document %s: %s was silent and is out of the replica set now", self.document.name, other.decode()
            )
        if act := self._acts.get(what):
            act(int(following or 0) if what == b"prepare" else int(version), sha.decode(), updates)
        return what in self._acts

    def begin(self) -> bool:
        """Lock the folder, and look at its files. False: another process keeps it."""
        if self._lock is not None:
            return True
        while (lock := self.copies.lock()) is None:
            following = next(self._names, None)
            if following is None:
                self._warn(f"another process keeps {self.copies.folder}")
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
        for one in self.copies.versions():
            if one > version:
                self.copies.drop(one)  # prepared once, and upon an earlier one
        self.copies.commit(version, sha)
        self._committed, self._prepared = self._prepared, Copy(0, "", {})

    def _fetch(self, version: int, sha: str, updates: bytes) -> None:
        found = self.document.fetch()
        if found.version < version:
            return  # Redis lost its last writes since it answered: it needs the files here
        sha = checksum(self.document.name, found.version, found.state)
        if found.version and found.sha not in ("-", sha):
            raise CoordinatorError(f"version {found.version} in Redis differs from its checksum")
        for one in self.copies.versions():
            if one > found.version:
                self.copies.drop(one)
        if found.version:
            self.copies.write(found.version, found.state)
            self.copies.commit(found.version, sha)
        self._committed, self._prepared = Copy(found.version, sha, found.state), Copy(0, "", {})

    def _restore(self, version: int, sha: str, updates: bytes) -> None:
        base = self._committed
        latest = max(base, self._prepared, key=lambda copy: copy.version)
        parts = [part for pair in latest.state.items() for part in pair]
        args = (latest.version, latest.sha, base.version, base.sha)
        done = self.store.step("document_restore", self.document.name, self.member, *args, *parts)
        if done:
            logger.warning(
                "document %s: %s put Redis forward to version %d", self.document.name, self.member, latest.version
            )
            self.copies.commit(latest.version, latest.sha)
            self._committed, self._prepared = latest, Copy(0, "", {})

    def _subscribe(self) -> None:
        """Hear news of the document. Redis also sees by the member's own channel that this process lives."""
        name = self.document.name
        if self._news is None:
            client = self.store.connect(self.store.settings.timeout)
            news: News = self.store.call(lambda: client.pubsub(ignore_subscribe_messages=True))
            self._news = news
            own = self.store.key("member", name, self.member)
            self.store.call(lambda: news.subscribe(self.store.key("replica", name), own))

    def _wait(self) -> None:
        """Wait for news, half a second at most."""
        if (news := self._news) is None:
            self.stopping.wait(TICK)
            return
        notice = self.store.call(lambda: news.get_message(timeout=TICK))
        what, _, look_id = notice["data"].decode().partition(" ") if notice else ("", "", "")
        if what == "look" and self._lock is not None:
            self._answer(look_id)

    def _answer(self, look_id: str) -> None:
        """Tell the asker of a `look` what lies on the disk now."""
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
            self._committed = Copy(0, "", {})  # so the next report makes it fetch

    def _rest(self) -> None:
        if self._news is not None:
            self._news.close()
            self._news = None
        self.stopping.wait(_PAUSE)

    def _withdraw(self) -> None:
        if self._lock is None:
            return  # another process is the member
        with suppress(StoreUnavailable, StoreRefused):  # then Redis puts the member out for its silence
            self.store.step("document_leave", self.document.name, self.member)

    def _unlock(self) -> None:
        """Unlock the folder for another process."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _warn(self, trouble: str) -> None:
        """Log a trouble once, until it changes; "" = it is over."""
        if trouble and trouble != self._trouble:
            logger.warning("document %s on %s: %s", self.document.name, self.member, trouble)
        self._trouble = trouble
