"""Sentry and OpenTelemetry's own instrumentation see the job of a keyed task as they see a plain task."""

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

from tests.harness.fleet import ROOT, Fleet
from tests.harness.waiting import wait_until

CALLS = """
import json, sentry_sdk
from opentelemetry import trace
from tests.harness.apps import keyed, traced

calls = {}
for how, options in (("keyed", {}), ("plain", {"coordinate": False})):
    with sentry_sdk.start_transaction(name="request"), trace.get_tracer("t").start_as_current_span("request") as span:
        of_sentry = sentry_sdk.get_current_scope().span.trace_id
        of_otel = format(span.get_span_context().trace_id, "032x")
        ids = [keyed.about.apply_async(**options).id, keyed.fail.apply_async(("bad",), **options).id]
    calls[how] = [of_sentry, of_otel, *ids]
print(json.dumps(calls))
"""


def told(fleet: Fleet, what: str) -> list[Any]:
    with fleet.server.client(3) as log:
        return [json.loads(line) for line in log.lrange(f"{fleet.prefix}.{what}", 0, -1)]


def called(fleet: Fleet) -> dict[str, list[str]]:
    """For each way: the traces of Sentry and OpenTelemetry, and the ids of a call that succeeds and one that fails."""
    env = os.environ | fleet.environ | {"TEST_TRACED": "1", "PYTHONPATH": ""}
    argv = [sys.executable, "-W", "ignore", "-c", CALLS]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert not done.returncode, done.stderr
    calls: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return calls


def test_sentry_and_opentelemetry_see_the_job_of_a_keyed_task_as_they_see_a_plain_task(fleet: Fleet) -> None:
    fleet.worker("one", 1, app="traced", fresh=True, TEST_TRACED="1", PYTHONPATH="")
    calls = called(fleet)
    wait_until(lambda: len(told(fleet, "spans")) >= 10 and len(told(fleet, "sentry")) >= 8, what=fleet.logs)
    spans, events = told(fleet, "spans"), told(fleet, "sentry")
    assert of_otel(spans, calls["keyed"]) == of_otel(spans, calls["plain"])
    assert of_sentry(events, calls["keyed"]) == of_sentry(events, calls["plain"])
    of_calls = ["request", *(f"{act}/keyed.{name}" for act in ("apply_async", "run") for name in ("about", "fail"))]
    assert Counter(span["name"] for span in spans) == Counter(2 * of_calls)
    assert "'coordinator.run'" not in str(events)


def of_otel(spans: list[Any], call: list[str]) -> dict[str, Any]:
    """The spans of a trace: their parents by name, and what they say."""
    mine = [span for span in spans if span["context"]["trace_id"] == f"0x{call[1]}"]
    names = {span["context"]["span_id"]: span["name"] for span in mine}
    own = ("celery.action", "celery.task_name", "celery.state", "messaging.destination")
    return {
        span["name"]: [
            names.get(span["parent_id"]), span["kind"], span["status"],
            {name: span["attributes"].get(name) for name in own},
            span["attributes"].get("messaging.message.id") in call,
            [(event["name"], event["attributes"].get("exception.message")) for event in span["events"]],
        ]
        for span in mine
    }  # fmt: skip


def of_sentry(events: list[Any], call: list[str]) -> list[Any]:
    """The errors and transactions of a trace."""
    mine = [event for event in events if event["contexts"]["trace"]["trace_id"] == call[0]]
    return sorted(
        [
            event["transaction"], event.get("type", "error"), event["contexts"]["trace"].get("op") or "",
            (event.get("tags") or {}).get("celery_task_id") in call,
            [[one["type"], one["value"]] for one in (event.get("exception") or {}).get("values", ())],
            [span["op"] for span in event.get("spans", ()) if span["op"] != "queue.publish"],
            (event.get("extra") or {}).get("celery-job", {}).get("task_name", ""),
        ]
        for event in mine
    )  # fmt: skip
