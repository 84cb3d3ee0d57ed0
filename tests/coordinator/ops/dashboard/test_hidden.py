"""What `hidden` hides is nowhere: not on a page, not in JSON, not in Celery's events, not in its `inspect`."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from html import unescape

import pytest
from celery import Celery, chain
from pydantic import BaseModel, ConfigDict

from coordinator import Coordinator, Refused
from coordinator.core.fleet.status_file import StatusFile
from coordinator.core.runner.attempt import Outcome
from coordinator.core.runner.task_events import TaskEvents
from coordinator.core.worker.inspected import InspectedJobs
from coordinator.inbox.inbox import Inbox
from coordinator.inbox.message import MOST
from coordinator.scheduler.entry import Entry
from tests.coordinator.core.runner.test_attempt_steps import take_claim
from tests.coordinator.ops.dashboard.conftest import Visit
from tests.harness.events import Ear
from tests.harness.hand_node import playing
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

SECRET = "hunter-2-canary"
ABOUT = {"password": SECRET, "order": {"token": SECRET, "number": 7}}


class Letter(BaseModel):
    model_config = ConfigDict(extra="forbid")

    member: str
    password: str


class Vault:
    """An installation with a secret in each place where a user's value can stand."""

    def __init__(self, redis: RedisServer, prefix: str) -> None:
        self.app = Celery("vault", broker=redis.url(1), set_as_current=False)
        self.coordinator = Coordinator(self.app, url=redis.url(0), prefix=prefix)

        @self.app.task(name="vault.open", shared=False)
        def open_vault(number: int, password: str = "", *tokens: str, **more: object) -> None: ...

        self.open_vault = open_vault
        self.node = playing(self)
        self.fill(prefix)

    def fill(self, prefix: str) -> None:
        c, node, call = self.coordinator, self.node, self.open_vault
        parts = [{"id": "x", "result": {"token": SECRET}}]
        error = json.dumps({"type": "Odd", "message": "odd", "args": [ABOUT], "parts": parts})
        c.submit("done", call.s(1, SECRET, "-", SECRET, secret=SECRET), job_id="done")
        node.finish(node.must_take(), detail=json.dumps(ABOUT))
        c.submit("failed", call.s(1, order={"token": SECRET}), rollback=call.s(2, SECRET), job_id="failed")
        node.finish(node.must_take(), "failed", detail=error)
        node.finish(node.must_take(), "failed", detail=error)
        c.submit("chain", chain(call.si(1), call.s(SECRET)), job_id="chain")
        node.finish(node.must_take(), "step", detail="1", following=("vault\ncelery", call.name, 0))
        c.submit("calls", call.s(1, more=call.s(2, SECRET)), job_id="calls")
        c.submit("unknown", {"task": "elsewhere", "args": [SECRET]}, if_unknown="wait", job_id="unknown")
        c.submit("later", call.s(1, SECRET).set(countdown=60), job_id="later")
        c.entries.put(
            Entry("nightly", "0 0 2 * * ?", call.name, key="night", args=[1, SECRET], kwargs={"secret": SECRET})
        )
        c.sorter("files", 3600.0).add("b", "file", call.s(1, SECRET))
        c.grab("count", "monday", "host-a").complete(ABOUT)
        self.refuse(f"{prefix}.letters")

    def refuse(self, queue: str) -> None:
        def handle(letter: Letter) -> None:
            raise Refused(f"unknown member {letter.member}")

        self.coordinator.inbox(queue, Letter, handle)
        inbox: Inbox[Letter] = Inbox(self.app, queue, Letter, handle, "one", lambda: self.coordinator.store)
        about = {"member": "urn:refused", "password": SECRET}
        self.app.send_task(queue, kwargs=about)
        self.app.send_task(queue, args=[SECRET])
        with self.app.connection_for_write() as connection:
            channel = connection.channel()
            for body in (json.dumps(about), f"password={SECRET}", json.dumps(about | {"x": "x" * MOST})):
                channel.client.lpush(queue, body)
            connection.Producer(channel).publish(about, routing_key=queue, exchange="", serializer="json")
            connection.Producer(channel).publish(about, routing_key=queue, exchange="", serializer="pickle")

        def refused() -> bool:
            inbox.step()
            return len(self.coordinator.refused()) == 7

        wait_until(refused)


@pytest.fixture
def vault(redis_server: RedisServer, prefix: str) -> Iterator[Vault]:
    made = Vault(redis_server, prefix)
    yield made
    made.coordinator.close()


def test_no_page_and_no_json_shows_what_is_hidden(vault: Vault, visit: Visit) -> None:
    client, seen = visit(vault.coordinator), dict[str, str]()
    api = client.get("/api/openapi.json").json()["paths"]
    left = ["/", "/jobs", "/grabs", "/refused", "/locks", "/sorters", f"/jobs?text={SECRET}", f"/find?q={SECRET}"]
    left += [path for path, ways in api.items() if "get" in ways]
    left += [f"/api/{one}" for one in ("job?id=done", "job?id=failed", "lane?key=done", "why?job=unknown",
             "why?entry=nightly", "entry?name=nightly", "history?name=nightly")]  # fmt: skip
    while left:
        path = left.pop()
        answer = client.get(path, follow_redirects=True)
        seen[path] = answer.text
        links = (
            re.findall(r'(?:href|hx-get)="(/[^"]*)"', answer.text) if "html" in answer.headers["content-type"] else []
        )
        left += [link for one in links if (link := unescape(one)) not in seen and link not in left]
    assert len(seen) > 60
    found = {path for path, text in seen.items() if SECRET in text.replace(f'value="{SECRET}"', "")}
    assert {path for path in found if SECRET not in path} == set()
    shown = "".join(seen.values())
    assert "urn:refused" in seen["/refused"]
    assert shown.count("(hidden)") > 10


def test_what_flower_and_inspect_are_told_of_a_job_is_hidden_alike(vault: Vault) -> None:
    c, node, status_file = vault.coordinator, vault.node, StatusFile.open()
    status_file.events = True
    call = vault.open_vault.s(1, SECRET, secret=SECRET)
    with closing(status_file), Ear(vault.app) as ear:
        job_id, events = c.submit("told", call).id, TaskEvents(vault.app, "one", status_file)
        claims = iter(partial(take_claim, node), None)
        claim = next(claim for claim in claims if claim.id == job_id)
        events.started(claim)
        events.ended(claim, Outcome("succeeded", "", ABOUT), "succeeded")
        wait_until(lambda: len(ear.of(job_id)) == 3)
    said = json.dumps(ear.told)
    assert (SECRET in said, said.count("(hidden)")) == (False, 4)
    looked = InspectedJobs(vault.app, c.store, "one")
    infos = json.dumps([*looked.reserved(), *looked.scheduled()])
    assert (SECRET in infos, "(hidden)" in infos) == (False, True)
