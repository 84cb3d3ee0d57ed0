"""An installation in which each page of the dashboard has something to show, and a server for it."""

import asyncio
import json
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import uvicorn
from celery import Celery
from flower.app import Flower
from flower.options import default_options
from flower.urls import settings
from starlette.types import ASGIApp
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop
from tornado.netutil import bind_sockets
from tornado.web import RequestHandler

from coordinator import Coordinator
from coordinator.scheduler.entry import Entry
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it wants httpx2 by now
    from starlette.testclient import TestClient as TestClient

EVIL = '<script>alert(1)</script>/../?#%&"'
TOKEN = "a-token-for-tests"
DAY = 86_400_000


class Stage:
    """Lanes, jobs in many states, a drained node, an entry, a lock, a grab and a sorter."""

    def __init__(self, server: RedisServer, prefix: str) -> None:
        self.coordinator = Coordinator(url=server.url(0), prefix=prefix, timeout=10, node_ttl=3600, lock_ttl=3600)
        self._stack = ExitStack()
        c = self.coordinator
        self.node = Puppet(c.store, "n1@alpha", DAY)
        self.node.up(capacity=4)
        other = Puppet(c.store, "n2@beta", DAY)
        other.up(capacity=2)
        self._quotas()
        about = {"password": "hunter2", "paper": "thermal", "order": {"token": "sesame", "number": 7}}
        self.run = self.node.submit("till", args=("receipt",), kwargs=about, max_attempts=2, job_id="run").id
        self.node.finish(self.node.must_take(), "raised", delay=60_000)
        c.retry(self.run, why="the printer has paper", by="ulla")
        self.node.finish(self.node.must_take())
        self._park()
        self.jobs = [self.node.submit("customer/7", args=(n,), kwargs=about).id for n in range(3)]
        self.evil = self.node.submit([EVIL, "ledger"]).id
        self.node.submit("stock", on_failure="hold")
        self.running = self.node.must_take()
        self.node.take()
        if held := self.node.take():
            self.node.finish(held, "failed")
        c.pause("stock", why="it is counted", by="ulla")
        c.drain(other.name, why="new kernel", by="ulla")
        c.entries.put(Entry("nightly", "0 0 2 * * ?", "shop.work", key="night"))
        c.sorter("files", 3600.0).add("b", "file", {"task": "shop.work", "args": [], "kwargs": {}, "options": {}})
        self.node.submit("gate", job_id="gated", after=c.event("approved/<42>"))
        c.event("paid/7").set({"token": "sesame", "sum": 12}, why="the bank says so", by="ulla")
        c.grab("backup", "monday", "host-a", ttl=600)
        self._stack.enter_context(c.lock("door", 600))

    def _quotas(self) -> None:
        """One of which all is used, and for which jobs wait; one that cools down, with a rate; and a default."""
        c = self.coordinator
        c.quota("licence", concurrency=2, why="two licences", by="ulla")
        c.quota("tenant/*", concurrency=5, rate="100/m", burst=20, why="fair for all", by="ulla")
        c.quota("mail", rate="1/h", why="the provider says so", by="ulla")
        c.cool_down("tenant/acme", 3600, why="429 of acme", by="ulla")
        c.weight("customer", 3, why="they pay", by="ulla")
        for number in range(2):
            self.node.submit(f"own/{number}", uses="licence", job_id=f"uses{number}")
        self.drawing = [self.node.must_take() for _ in range(2)]
        for number, uses in enumerate(({"licence": 2}, {"licence": 1, "mail": 1}, "licence")):
            self.node.submit([], uses=uses, job_id=f"lacks{number}")
        self.node.submit("own/9", uses="tenant/acme", job_id="cooled")
        self.node.submit([], uses="mail", job_id="mails")

    def _park(self) -> None:
        """A job that waits for one of its own, which waits for a task."""
        for job_id, awaited in (("parent", "child"), ("child", "a-task")):
            self.node.submit(job_id, job_id=job_id)
            taken, handles = self.node.must_take(), json.dumps({"ids": [awaited], "one": True})
            about = (0, "", "", "", "", self.node.name, taken.runner, "", DAY)
            self.node.store.step("job_finish", taken.id, taken.token, "parked", handles, *about)

    def end(self) -> None:
        self._stack.close()
        store = self.coordinator.store
        for name in store._client.scan_iter(f"{store.prefix}*", 1000):
            store._client.delete(name)
        self.coordinator.close()


PAGES = {
    "/": "Overview",
    "/lanes": "customer/7",
    "/lane?key=customer/7": "Waiting in line",
    "/lane?key=till": "2 attempts",
    "/tenants": "without a key",
    "/tenants?prefix=customer/&sort=running": "all keys",
    "/job?id=run": "the printer has paper",
    "/job?id=parent": "a-task",
    "/jobs": "customer/7",
    "/quotas": "the provider says so",
    "/quota?name=licence": "Nobody passes the first one",
    "/quota?name=tenant/acme": "429 of acme",
    "/quota?name=tenant/*": "The quotas that begin so",
    "/events": "the bank says so",
    "/event?name=approved/<42>": "not set",
    "/event?name=paid/7": "the bank says so",
    "/job?id=gated": "event.unset",
    "/job?id=lacks0": "waiting.quota",
    "/job?id=mails": "waiting.rate",
    "/jobs?state=held": "stock",
    "/nodes": "n1@alpha",
    "/node?name=n1@alpha": "shop.work",
    "/schedule": "nightly",
    "/entry?name=nightly": "Next",
    "/actions": "new kernel",
    "/locks": "door",
    "/grabs": "host-a",
    "/sorters": "files",
    "/refused": "coordinator -A APP dashboard",
}


@contextmanager
def served(app: ASGIApp, **more: Any) -> Iterator[str]:
    """Give the address at which uvicorn, in a thread, serves this app."""
    config = uvicorn.Config(app, port=0, log_level="error", lifespan="on", timeout_graceful_shutdown=1, **more)
    server = uvicorn.Server(config)
    with config.bind_socket() as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(60)


@contextmanager
def flowered(app: Celery, **options: Any) -> Iterator[str]:
    """Give the address of a Flower in a thread of this process, which hears no events."""
    known = {name.replace("-", "_"): value for name, value in default_options.items()} | options
    ready, ended = threading.Event(), asyncio.Event()
    about: dict[str, Any] = {}

    RequestHandler._template_loaders.clear()  # tornado keeps the loader of the first Flower of a process

    async def serve() -> None:
        made = Flower(capp=app, options=SimpleNamespace(**known), io_loop=IOLoop.current(), **settings)
        sockets = bind_sockets(0, "127.0.0.1")
        server = HTTPServer(made)
        server.add_sockets(sockets)
        about.update(port=sockets[0].getsockname()[1], loop=asyncio.get_running_loop())
        ready.set()
        await ended.wait()
        server.stop()
        await server.close_all_connections()
        made.executor.shutdown()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(60)
    try:
        yield f"http://127.0.0.1:{about['port']}"
    finally:
        about["loop"].call_soon_threadsafe(ended.set)
        thread.join(60)
