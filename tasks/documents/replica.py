"""A member of a replica set: the thread of a warden or a beat that keeps this machine's copies of a document.

The member reports what lies on its disk, and Redis answers what to do:

    prepare  append the next version to the log on the disk
    commit   note that the prepared version is committed
    behind   fetch the committed version from Redis
    ahead    Redis lost its last writes: restore them from this disk

A member may repeat each report. After its death the next process on this disk reads the files again. A member that
cannot write its disk leaves the replica set until it can, and gives the reason.

A folder that was copied, say with its machine, has the identity of the original. A process that sees another
subscriber on its own channel gives its folder a new identity.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol, TypedDict

from kombu.utils.json import dumps, loads

from coordinator import CoordinatorError, StoreRefused, StoreUnavailable
from coordinator.extending import StoppableThread, Store
from tasks.documents.copy import ANY, NONE, sum_of
from tasks.documents.document import Document
from tasks.documents.library import with_documents
from tasks.documents.on_disk import Copies
from tasks.documents.replica_set import name_of

logger = logging.getLogger(__name__)

SILENCE_MS = 2000
TICK = 0.5
_PAUSE = 0.5
_LINGERING = 3.0  # seconds for which the connection of an earlier process may still be open


class PubSub(Protocol):
    """The part of redis-py's PubSub that is used here."""

    def subscribe(self, *channels: str) -> None: ...

    def get_message(self, *, timeout: float) -> Mapping[str, bytes] | None: ...

    def close(self) -> None: ...


class Update(TypedDict):
    """An update that waits in Redis. `changes`: (entry, its value as JSON, checksum that the author read, fence)."""

    changes: list[tuple[str, str, str, int]]


class Replica(StoppableThread):
    """A member, with its copies in `<root>/<name>`.

    `several`: where another process keeps that folder already, this one takes the name `<name>.2`, and so on.
    """

    def __init__(self, store: Store, document: str, name: str, root: Path, several: bool = False) -> None:
        super().__init__(f"replica-{document}", 3.0)
        self.store = with_documents(Store(store.settings))
        self.name = self.member = name
        self.document = Document(self.store, document)
        self.copies = Copies(root / name, document)
        self._root = root
        self._names = (f"{name}.{number}" for number in itertools.count(2)) if several else iter(())
        self._committed = self._prepared = NONE
        self._lock: IO[str] | None = None
        self._trouble = ""
        self._news: PubSub | None = None
        self._client: object = None
        self._identity_checked = False
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
                    self._check_identity()
                    while not self.stopping.is_set() and self.step():
                        pass
                    self._warn("")
                self._wait()
            except CoordinatorError as error:
                self._warn(str(error))
                self._rest()
            except OSError as error:
                self._refuse(f"it cannot write its disk: {error}")
            except Exception:
                logger.exception("replica of %s on %s", self.document.name, self.name)
                self._rest()
        self._withdraw("")
        self._silence()
        self._unlock()
        self.store.close()

    def step(self) -> bool:
        """Report once, and do what Redis answers. False: there was nothing to do."""
        known, ready = self._committed, self._prepared
        args = (known.version, known.sha, ready.version, ready.sha, SILENCE_MS)
        what, version, sha, following, updates, out = self.store.step(
            "document_report", self.document.name, self.member, *args
        )
        for other in out:
            logger.warning(
                "document %s: %s was silent and is out of the replica set now",
                self.document.name,
                name_of(other.decode()),
            )
        if act := self._acts.get(what):
            act(int(following or 0) if what == b"prepare" else int(version), sha.decode(), updates)
        return what in self._acts

    def begin(self) -> bool:
        """Lock the folder and read its files. False: another process keeps it. Raises OSError."""
        if self._lock is not None:
            return True
        while (lock := self.copies.lock()) is None:
            following = next(self._names, None)
            if following is None:
                self._warn(f"another process keeps {self.copies.folder}")
                return False
            self.name, self.copies = following, Copies(self._root / following, self.document.name)
        try:
            self._identify()
            self.copies.begin()
        except OSError:
            lock.close()
            raise
        self._lock = lock
        self._committed, self._prepared = self.copies.committed(), self.copies.prepared() or NONE
        return True

    def _identify(self, anew: bool = False) -> None:
        self.copies.identify(anew)
        if self.copies.member != self.member:
            self._silence()
            self.member = self.copies.member

    def _prepare(self, version: int, sha: str, updates: bytes) -> None:
        prepared: list[Update] = loads(updates)
        changes = {entry: f"{fence} {text}" for update in prepared for entry, text, _, fence in update["changes"]}
        self._prepared = self.copies.prepare(version, changes)

    def _commit(self, version: int, sha: str, updates: bytes) -> None:
        self._committed, self._prepared = self.copies.commit(version), NONE

    def _fetch(self, version: int, sha: str, updates: bytes) -> None:
        copy = self.document.fetch()
        if copy.version < version:
            return  # Redis lost its last writes since it answered: the files here are newer
        if copy.version and copy.sha not in (*ANY, sum_of(copy.state)):
            raise CoordinatorError(f"version {copy.version} in Redis differs from its checksum")
        self._committed, self._prepared = self.copies.replace(copy.version, copy.state), NONE

    def _restore(self, version: int, sha: str, updates: bytes) -> None:
        base = self._committed
        latest = max(base, self._prepared, key=lambda copy: copy.version)
        parts = [part for pair in latest.state.items() for part in pair]
        args = (latest.version, latest.sha, base.version, base.sha)
        done = self.store.step("document_restore", self.document.name, self.member, *args, *parts)
        if done:
            logger.warning(
                "document %s: %s put Redis forward to version %d", self.document.name, self.name, latest.version
            )
            if latest is not base:
                self._commit(latest.version, latest.sha, b"")

    def _subscribe(self) -> None:
        """Subscribe to the document's channel, and to the member's own, by which Redis sees that this process lives."""
        if self._news is not None:
            return
        # redis-py closes the connections of a client that is garbage-collected.
        client = self._client = self.store.connect(self.store.settings.timeout)
        news: PubSub = self.store.call(lambda: client.pubsub(ignore_subscribe_messages=True))
        self._news = news
        own = self.store.key("member", self.document.name, self.member)
        self.store.call(lambda: news.subscribe(self.store.key("replica", self.document.name), own))

    def _check_identity(self) -> None:
        """Give the folder a new identity where another process has the same."""
        since = time.monotonic()
        while (shared := not self._identity_checked and self._shared()) and time.monotonic() - since < _LINGERING:
            if self.stopping.wait(_PAUSE):
                return
        if shared:
            logger.warning(
                "document %s on %s: another process has the identity of %s, which is a copy of its folder or was "
                "copied: the identity is replaced",
                self.document.name,
                self.name,
                self.copies.folder,
            )
            self._identify(anew=True)
            self._subscribe()
        self._identity_checked = True

    def _shared(self) -> bool:
        """True if another connection has subscribed to this member's channel."""
        own = self.store.key("member", self.document.name, self.member)
        return int(self.store.read("PUBSUB NUMSUB", own)[0][1]) > 1

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
        """Answer a `look` with what lies on the disk now."""
        disk = Copies(self._root / self.name, self.document.name)
        version, noted = self._committed.version, self._committed.sha
        copy = disk.read(version, noted)
        sha, key = copy.sha if copy else "", self.store.key("answer", look_id)
        answer = dumps([self.member, version, noted, sha])
        self.store.read_many([("RPUSH", key, answer), ("EXPIRE", key, 60)], atomic=True)
        if noted != sha:
            logger.error("document %s on %s: the copy of version %d is damaged", self.document.name, self.name, version)
            self._committed = NONE  # so that the next report makes it fetch

    def _refuse(self, trouble: str) -> None:
        """Leave the replica set, and note why. The subscription stays, so that Redis sees that this process lives."""
        self._warn(trouble)
        self._withdraw(trouble)
        self._unlock()
        try:
            self._subscribe()
            self._wait()
        except CoordinatorError:
            self._rest()

    def _rest(self) -> None:
        self._silence()
        self.stopping.wait(_PAUSE)

    def _silence(self) -> None:
        if self._news is not None:
            self._news.close()
            self._news = None
            self._identity_checked = False

    def _withdraw(self, why: str) -> None:
        if self._lock is None and not why:
            return  # another process is the member
        with suppress(StoreUnavailable, StoreRefused):  # then Redis removes the silent member later
            self.store.step("document_leave", self.document.name, self.member, why)

    def _unlock(self) -> None:
        """Release the folder, so that another process may keep it."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _warn(self, trouble: str) -> None:
        """Log a trouble once, until it changes; "" means that it is over."""
        if trouble and trouble != self._trouble:
            logger.warning("document %s on %s: %s", self.document.name, self.name, trouble)
        self._trouble = trouble
