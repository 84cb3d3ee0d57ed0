"""A member of a replica set: the thread of a node or a beat that keeps this machine's copies of a document.

The member reports to Redis which versions are on its disk, and the answer says what to do:

    prepare  append the next version to the log on the disk
    commit   append to the log that the prepared version is committed
    behind   fetch the committed version from Redis
    ahead    Redis has lost its last writes: restore them from this disk

Each report may be repeated. If the process dies, the next process of this node or beat reads the files again. A member
that cannot write to its disk leaves the replica set, with the reason, until it can write again.

If a folder was copied, for instance with the whole machine, both folders have the same identity. A process that finds
another subscriber on its member's own channel gives its folder a new identity.
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
from tasks.documents.steps import document_leave, document_report, document_restore

logger = logging.getLogger(__name__)

SILENCE_MS = 2000
"""Milliseconds without a report after which a member leaves the replica set, if others have acknowledged an update."""
TICK = 0.5
"""Seconds between two reports if no message comes."""
_PAUSE = 0.5  # seconds before the next try after an error
_LINGERING = 3.0  # seconds for which the connection of a dead process may still count as a subscriber


class PubSub(Protocol):
    """The methods of redis-py's PubSub that this module uses."""

    def subscribe(self, *channels: str) -> None: ...

    def get_message(self, *, timeout: float) -> Mapping[str, bytes] | None: ...

    def close(self) -> None: ...


class Update(TypedDict):
    """An update that waits in Redis.

    `changes`: for each entry its name, its new value as JSON, the checksum of what the author read, and the fence.
    """

    changes: list[tuple[str, str, str, int]]


class Replica(StoppableThread):
    """The thread that keeps the copies of a document in `<root>/<name>`, as a member of the replica set.

    `name`: of the node or beat. `several`: if another process owns that folder, take the name `<name>.2`, and so on.
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
                logger.exception("document %s on %s: unexpected error, trying again", self.document.name, self.name)
                self._rest()
        self._withdraw("")
        self._silence()
        self._unlock()
        self.store.close()

    def step(self) -> bool:
        """Report to Redis once what is on the disk, and do what the answer says. Returns False if it says nothing."""
        known, ready = self._committed, self._prepared
        args = (known.version, known.sha, ready.version, ready.sha, SILENCE_MS)
        reply = document_report(self.store, self.document.name, self.member, *args)
        what, version, sha, following, updates, out = reply
        for other in out:
            logger.warning(
                "document %s: %s has not reported and is out of the replica set now",
                self.document.name,
                name_of(other.decode()),
            )
        if act := self._acts.get(what):
            act(int(following or 0) if what == b"prepare" else int(version), sha.decode(), updates)
        return what in self._acts

    def begin(self) -> bool:
        """Lock the folder and read its files. Returns False if another process owns the folder. Raises OSError."""
        if self._lock is not None:
            return True
        while (lock := self.copies.lock()) is None:
            following = next(self._names, None)
            if following is None:
                self._warn(f"another process owns {self.copies.folder}")
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
        """Give the folder an identity (with `anew`, a new one). If the member's name changes, end the subscription."""
        self.copies.identify(anew)
        if self.copies.member != self.member:
            self._silence()
            self.member = self.copies.member

    def _prepare(self, version: int, sha: str, updates: bytes) -> None:
        """Do the command `prepare`. `updates`: JSON with the updates that make the version."""
        prepared: list[Update] = loads(updates)
        changes = {entry: f"{fence} {text}" for update in prepared for entry, text, _, fence in update["changes"]}
        self._prepared = self.copies.prepare(version, changes)

    def _commit(self, version: int, sha: str, updates: bytes) -> None:
        """Do the command `commit`."""
        self._committed, self._prepared = self.copies.commit(version), NONE

    def _fetch(self, version: int, sha: str, updates: bytes) -> None:
        """Do the command `behind`: replace the copy on the disk by the committed version from Redis."""
        copy = self.document.fetch()
        if copy.version < version:
            return  # Redis has lost its last writes since it answered the report: this disk may have a newer version
        if copy.version and copy.sha not in (*ANY, sum_of(copy.state)):
            raise CoordinatorError(f"the entries of version {copy.version} in Redis do not match its checksum")
        self._committed, self._prepared = self.copies.replace(copy.version, copy.state), NONE

    def _restore(self, version: int, sha: str, updates: bytes) -> None:
        """Do the command `ahead`: write the latest version on this disk to Redis, which has lost its last writes."""
        base = self._committed
        latest = max(base, self._prepared, key=lambda copy: copy.version)
        parts = [part for pair in latest.state.items() for part in pair]
        args = (latest.version, latest.sha, base.version, base.sha)
        if document_restore(self.store, self.document.name, self.member, *args, *parts):
            logger.warning(
                "document %s: %s put version %d back into Redis", self.document.name, self.name, latest.version
            )
            if latest is not base:
                self._commit(latest.version, latest.sha, b"")

    def _subscribe(self) -> None:
        """Subscribe to the document's channel, for news, and to the member's own, so that Redis sees that it lives."""
        if self._news is not None:
            return
        # Keep a reference, since redis-py closes the connections of a client that is garbage-collected.
        client = self._client = self.store.connect(self.store.settings.timeout)
        news: PubSub = self.store.call(lambda: client.pubsub(ignore_subscribe_messages=True))
        self._news = news
        own = self.store.key("member", self.document.name, self.member)
        self.store.call(lambda: news.subscribe(self.store.key("replica", self.document.name), own))

    def _check_identity(self) -> None:
        """Give the folder a new identity if another process is a member of the same name and identity."""
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
        """True if another connection than this process's has subscribed to this member's own channel."""
        own = self.store.key("member", self.document.name, self.member)
        return int(self.store.read("PUBSUB NUMSUB", own)[0][1]) > 1

    def _wait(self) -> None:
        """Wait up to half a second for a message on the subscribed channels, and answer a `look`."""
        if (news := self._news) is None:
            self.stopping.wait(TICK)
            return
        notice = self.store.call(lambda: news.get_message(timeout=TICK))
        what, _, look_id = notice["data"].decode().partition(" ") if notice else ("", "", "")
        if what == "look" and self._lock is not None:
            self._answer(look_id)

    def _answer(self, look_id: str) -> None:
        """Read the disk again, and push the version and its checksum to the list of a `look`, a request of `verify`.

        If the copy is damaged, the next report makes this process fetch another.
        """
        disk = Copies(self._root / self.name, self.document.name)
        version, noted = self._committed.version, self._committed.sha
        copy = disk.read(version, noted)
        sha, key = copy.sha if copy else "", self.store.key("answer", look_id)
        answer = dumps([self.member, version, noted, sha])
        self.store.read_many([("RPUSH", key, answer), ("EXPIRE", key, 60)], atomic=True)
        if noted != sha:
            logger.error("document %s on %s: the copy of version %d is damaged", self.document.name, self.name, version)
            self._committed = NONE  # so that Redis answers the next report with `behind`

    def _refuse(self, trouble: str) -> None:
        """Leave the replica set, and store the reason `trouble` in Redis.

        Keeps the subscription, so that operators see this process as alive and out of the set.
        """
        self._warn(trouble)
        self._withdraw(trouble)
        self._unlock()
        try:
            self._subscribe()
            self._wait()
        except CoordinatorError:
            self._rest()

    def _rest(self) -> None:
        """End the subscription, and wait half a second before the next try."""
        self._silence()
        self.stopping.wait(_PAUSE)

    def _silence(self) -> None:
        """End the subscription, so that this process no longer counts as alive."""
        if self._news is not None:
            self._news.close()
            self._news = None
            self._identity_checked = False

    def _withdraw(self, why: str) -> None:
        """Leave the replica set. `why`: a sentence for operators; "" when the process ends in good order."""
        if self._lock is None and not why:
            return  # the folder belongs to another process, which is the member
        with suppress(StoreUnavailable, StoreRefused):  # then the member leaves later, since it no longer reports
            document_leave(self.store, self.document.name, self.member, why)

    def _unlock(self) -> None:
        """Release the folder, so that another process may own it."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _warn(self, trouble: str) -> None:
        """Log the warning `trouble`, unless it is the same as last time. "": the trouble is over."""
        if trouble and trouble != self._trouble:
            logger.warning("document %s on %s: %s", self.document.name, self.name, trouble)
        self._trouble = trouble
