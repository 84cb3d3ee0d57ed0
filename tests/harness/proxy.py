"""A TCP proxy of the tests between a client and a server: it can swallow, hold or slow everything, lose one
reply, or cut."""

import socket
import threading
from contextlib import suppress
from typing import Self


class _Pair:
    """One connection through the proxy."""

    def __init__(self, proxy: "Proxy", client: socket.socket, target: socket.socket, swallowing: bool) -> None:
        self._proxy = proxy
        self._client = client
        self._target = target
        self._tail = b""
        self._losing = False
        self._over = threading.Event()
        self.swallowing = swallowing
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._ask, self._answer)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._over.set()
        self._hang_up()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._client.close()
        self._target.close()

    def _hang_up(self) -> None:
        for end in (self._client, self._target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _ask(self) -> None:
        with suppress(OSError):
            while data := self._client.recv(65536):
                if not self.swallowing:
                    seen, self._tail = self._tail + data, data[-4096:]
                    self._losing = self._losing or self._proxy._to_lose(seen)
                    self._proxy.open.wait()
                    self._target.sendall(data)
        self._hang_up()

    def _answer(self) -> None:
        with suppress(OSError):
            while self._target.recv(1, socket.MSG_PEEK):
                self._over.wait(self._proxy.delay)  # what comes meanwhile is of the same reply
                data = self._target.recv(65536)
                if self._losing:
                    self._proxy.lost.set()
                    break
                if not self.swallowing:
                    self._proxy.open.wait()
                    self._client.sendall(data)
        if not self.swallowing:
            self._hang_up()


class Proxy:
    """Forwards `port` of an address of this machine to 127.0.0.1:`target`.

    `lost` is set once the reply that `lose_reply` asked for was dropped. `delay`: by so many s each reply is late.
    """

    delay = 0.0

    def __init__(self, target: int, address: str = "127.0.0.1") -> None:
        self.target = target  # of connections made from now
        self.address = address
        self._listener = socket.create_server((address, 0))
        self.port = int(self._listener.getsockname()[1])
        self.lost = threading.Event()
        self.open = threading.Event()
        self.open.set()
        self._lock = threading.Lock()
        self._pairs: list[_Pair] = []
        self._swallowing = self._cutting = False
        self._needle: bytes | None = None
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def url(self, database: int = 0) -> str:
        return f"redis://{self.address}:{self.port}/{database}"

    @property
    def connections(self) -> int:
        """How many were made so far."""
        return len(self._pairs)

    def swallow(self) -> None:
        """From now every byte vanishes and nothing is closed: all connections, and new ones, are half-open."""
        with self._lock:
            self._swallowing = True
            for pair in self._pairs:
                pair.swallowing = True

    def cut(self) -> None:
        """Close all connections, and each new one at once."""
        with self._lock:
            self._cutting = True
        self._close_all()

    def hold(self) -> None:
        """As a network that is cut: nothing passes until `heal`, then all that was sent meanwhile comes, late."""
        self.open.clear()

    def heal(self) -> None:
        """New connections work again; the half-open ones stay so."""
        with self._lock:
            self._swallowing = self._cutting = False
        self.open.set()

    def lose_reply(self, containing: bytes) -> None:
        """Forward the next request that contains this, and instead of its reply close its connection."""
        self.lost.clear()
        self._needle = containing

    def _to_lose(self, seen: bytes) -> bool:
        with self._lock:
            if self._needle is None or self._needle not in seen:
                return False
            self._needle = None
            return True

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    target = socket.create_connection(("127.0.0.1", self.target), timeout=5)
                except OSError:
                    client.close()
                    continue
                target.settimeout(None)
                with self._lock:
                    if self._cutting:  # before anything can pass
                        client.close()
                        target.close()
                        continue
                    pair = _Pair(self, client, target, self._swallowing)
                    self._pairs.append(pair)
                    pair.start()

    def _close_all(self) -> None:
        self.open.set()
        for pair in list(self._pairs):
            pair.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self._close_all()
