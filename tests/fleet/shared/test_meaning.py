"""What Celery means, a keyed call and a submitted one mean, or docs/keyed-tasks.md says where they differ.

Each case runs with plain Celery, which gives the expected outcome, with a keyed task, and as a submitted job.
"""

import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from celery import signals

from tests.fleet.shared.meaning import CASES, Run
from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

QUEUES = ("-Q", "celery,other")
NODE = Node("meaning", 8, QUEUES)
PAGE = Path(__file__).parents[3] / "docs" / "keyed-tasks.md"
BOTH, KEYED, SUBMITTED = {"keyed", "submitted"}, {"keyed"}, {"submitted"}

# A line of the page: the cases for which it stands, and for which kinds.
DIFFERS = {
    "A killed task runs again.": {"killed": BOTH, "an unhandled SystemExit": BOTH},
    "Retries keep the lane.": {
        "retry, with a call behind it in its lane": BOTH,
        "retry without raising": BOTH,
        "Reject and requeue, 25 times": BOTH,
    },
    "`self.replace`": {"replace by a task that ignores": KEYED},
    "A task's `rate_limit`": {},
    "A task that waits for a call in its own lane": {"a group in the own lane": KEYED},
    "An id is one call.": {"one id twice": BOTH},
    "A handle that a task returns": {"a handle as its result": BOTH},
    "A job is no message.": {
        "request.argsrepr": BOTH,
        "request.kwargsrepr": BOTH,
        "request.properties": BOTH,
        "request.reply_to": SUBMITTED,
        "what a result says": BOTH,
        "revoke by a stamp, before the call": BOTH,
    },
    "A call that could never work": {
        "sets as arguments": BOTH,
        "an object as argument": BOTH,
        "a wrong argument": SUBMITTED,
    },
    "`submit` refuses": dict.fromkeys(
        (
            "routing_key",
            "retries",
            "serializer",
            "retry of the publish",
            "argsrepr",
            "root_id and parent_id",
            "reply_to",
        ),
        SUBMITTED,
    ),
    "A submitted canvas is one job.": dict.fromkeys(
        (
            "request of a second step",
            "chain, a step with a link",
            "chain, a step with a countdown",
            "stamps by a visitor",
            "group with a failure",
            "terminate in a chain",
        ),
        SUBMITTED,
    ),
    "A backend of results that is away": {"a backend that is away": BOTH},
}


@pytest.fixture
def module(fleet: Fleet) -> Iterator[Any]:
    """The app of `tests.harness.apps.meaning`, with a worker of coordinated and one of plain tasks."""
    fleet.worker("plain", 8, *QUEUES, app="meaning:plain", ready=False)
    module = fleet.app("meaning")
    wait_until(lambda: module.plain.control.ping(timeout=1, limit=1))
    yield module
    for app in {tasks.app for tasks in module.KINDS.values()}:
        app.backend.result_consumer.stop()
        app.backend.client.connection_pool.disconnect()
    module.plain.close()
    signals.before_task_publish.disconnect(module._trace)  # it would be asked about the submits of other tests


def outcomes(module: Any, names: Iterable[str], turn: int) -> dict[str, dict[str, str]]:
    """The outcome of each case with each kind of tasks, once all of them have ended."""
    made = {name: {kind: Run(name, module, kind, turn) for kind in module.KINDS} for name in names}
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda pair: pair[1].begin(CASES[pair[0]]), [(n, run) for n in made for run in made[n].values()]))
    wait_until(lambda: {lane.state for lane in module.coordinator.lanes()} <= {"parked"} and _is_idle(module.plain), 60)
    before, since = None, time.monotonic()
    while time.monotonic() < since + 1.5:
        if (now := [run.outcome() for kinds in made.values() for run in kinds.values()]) != before:
            before, since = now, time.monotonic()
    found = {name: {kind: outcome(run) for kind, run in kinds.items()} for name, kinds in made.items()}
    for kinds in made.values():
        for run in kinds.values():
            run.made = None  # Celery's results reach for their backend as they go
    return found


def _is_idle(app: Any) -> bool:
    asked = app.control.inspect(timeout=5, limit=1)
    return not any(any((look() or {"": True}).values()) for look in (asked.active, asked.reserved, asked.scheduled))


def outcome(run: Run) -> str:
    """Without what is another at each run."""
    text = repr(run.outcome()).replace(run.kind, "KIND")
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    return re.sub(r"\b(\d+)\.0\b", r"\1", text)


def test_a_keyed_call_and_a_submitted_one_mean_what_celery_means(module: Any) -> None:
    """A slow machine may decide a race of limits, revokes or parts otherwise: such a case runs again."""
    listed = {(name, kind) for cases in DIFFERS.values() for name, kinds in cases.items() for kind in kinds}
    assert len(CASES) >= 60
    names, wrong = list(CASES), {}
    for turn in range(4):
        wrong = {
            (name, kind): f"{name}, {kind}: {kinds[kind]}\n  plain: {kinds['plain']}"
            for name, kinds in outcomes(module, names, turn).items()
            for kind in sorted(BOTH)
            if (kinds[kind] != kinds["plain"]) != ((name, kind) in listed)
        }
        names = sorted({name for name, _ in wrong})
        if not names:
            break
    assert not wrong, "\n".join(wrong.values())


def test_the_page_says_where_a_call_differs_and_nothing_else() -> None:
    section = PAGE.read_text().partition("## Where it differs from a plain task\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^- \*\*(.+?)\*\*", section, re.MULTILINE)
    assert lines == list(DIFFERS)
    assert len(lines) <= 12
