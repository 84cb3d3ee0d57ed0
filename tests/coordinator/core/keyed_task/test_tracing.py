"""The SDKs that trace tasks see the call of a keyed task as that of a plain one, and their headers reach the job."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.installation import Installation

ROOT = Path(__file__).parents[4]

SENTRY = """
import json, sentry_sdk
from tests.harness.apps import keyed
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.transport import Transport

seen = []

class Kept(Transport):
    def capture_envelope(self, envelope):
        seen.extend(item.payload.json for item in envelope.items if item.type == "transaction")

sentry_sdk.init(dsn="https://key@example.org/1", transport=Kept, traces_sample_rate=1.0,
                default_integrations=False, integrations=[CeleryIntegration()])
traces = []
for options in ({}, {"coordinate": False}):
    with sentry_sdk.start_transaction(name=str(options)):
        traces.append(sentry_sdk.get_current_scope().span.trace_id)
        call = keyed.about.apply_async(task_id=str(options), **options)
sentry_sdk.flush()
headers = keyed.coordinator._core.spec("{}")["headers"]
spans = [[span["op"] for span in event["spans"]] for event in seen]
with keyed.app.connection_for_write() as connection, connection.SimpleQueue("celery") as queue:
    message = queue.get(timeout=60)
print(json.dumps({"traces": traces, "ours": headers, "past": message.headers, "spans": spans}))
"""

# As the instrumentation of OpenTelemetry does: it injects into the headers, and reads the request of the task.
OTEL = """
import json
from celery import signals
from opentelemetry import trace
from opentelemetry.propagate import extract, inject
from opentelemetry.sdk.trace import TracerProvider
from tests.harness.apps import keyed

trace.set_tracer_provider(TracerProvider())
tracer, begun = trace.get_tracer("test"), {}

@signals.before_task_publish.connect(weak=False)
def before(headers, sender, **_):
    if sender.startswith("keyed."):
        begun[headers["id"]] = span = tracer.start_span(f"apply_async/{sender}")
        with trace.use_span(span):
            inject(headers)

@signals.after_task_publish.connect(weak=False)
def after(headers, sender, **_):
    if sender.startswith("keyed."):
        begun.pop(headers["id"]).end()

with tracer.start_as_current_span("request") as span:
    trace_id = format(span.get_span_context().trace_id, "032x")
    ours = keyed.about.delay()
headers = keyed.coordinator._core.spec(ours.id)["headers"]
print(json.dumps({"trace": trace_id, "ours": headers, "open": len(begun)}))
"""


# OpenTelemetry's own instrumentation, with its exporter in memory: submits and attempts of one process. The first run
# of each job is lost; the next ones retry, and the last one succeeds.
ATTEMPTS = """
import json
from celery import chain
from opentelemetry import baggage, context, trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from coordinator.core.fleet.status_file import StatusFile
from coordinator.core.runner.runner import WorkerContext, Runner, RunnerServices
from tests.harness.apps import keyed
from tests.harness.hand_node import playing

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
CeleryInstrumentor().instrument()
app, coordinator, tenants = keyed.app, keyed.coordinator, {}

def body(self):
    tenants.setdefault(self.name, []).append(baggage.get_baggage("tenant"))
    if len(tenants[self.name]) < 3:
        raise self.retry(countdown=0)

options = {"bind": True, "shared": False, "max_retries": 5}
ours = app.task(body, name="traced.keyed", coordinate={"key": "k"}, **options)
plain = app.task(body, name="traced.submitted", **options)
node = playing(keyed)
with trace.get_tracer("test").start_as_current_span("request") as span:
    token = context.attach(baggage.set_baggage("tenant", "7"))
    ours.delay()
    coordinator.submit("s", plain.s(), max_attempts=5)
    steps = chain(keyed.plain.s(1), keyed.fail.si("no"))
    coordinator.submit("c", steps, rollback=keyed.tell.si("undo"), max_attempts=1)
    context.detach(token)
    trace_id = span.get_span_context().trace_id
for _ in range(3):
    node.lose(node.must_take())
status_file = StatusFile.open()
context = WorkerContext("one", coordinator._lanes, "a", status_file)
Runner(app, context, RunnerServices(app, context)).run(node.rung()[0])
status_file.close()
spans = exporter.get_finished_spans()
names = {span.context.span_id: span.name for span in spans}
mine = [span for span in spans if span.context.trace_id == trace_id]
print(json.dumps({
    "all": len(spans), "tenants": tenants,
    "spans": [[span.name, span.parent and names.get(span.parent.span_id), span.attributes.get("celery.state")]
              for span in mine],
    "jobs": [coordinator.counts()[name] for name in ("succeeded", "losses", "retries")],
}))
"""


def said(apps: Installation, script: str) -> Any:
    command = [sys.executable, "-W", "ignore", "-c", script]
    environ = os.environ | apps.environ | {"PYTHONPATH": ""}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_sentry_follows_a_keyed_call_as_it_follows_a_plain_one(apps: Installation) -> None:
    found = said(apps, SENTRY)
    ours, past = found["ours"], found["past"]
    assert [one["sentry-trace"].split("-")[0] for one in (ours, past)] == found["traces"]
    of_sentry = {name for name in past if name.startswith("sentry") or name == "baggage"}
    assert {"sentry-trace", "baggage"} <= of_sentry
    assert of_sentry | past["headers"].keys() - {"coordinate"} <= ours.keys()
    of_ours, of_past = found["spans"]
    assert of_ours == [span for span in of_past if span != "queue.publish"] != []


def test_opentelemetry_s_headers_reach_the_job(apps: Installation) -> None:
    found = said(apps, OTEL)
    assert found["ours"]["traceparent"].split("-")[1] == found["trace"]
    assert found["open"] == 0


def test_one_trace_leads_from_the_submit_over_a_lost_run_to_the_last_retry_of_each_step(apps: Installation) -> None:
    found = said(apps, ATTEMPTS)
    expected = [["request", None, None]]
    for name in ("traced.keyed", "traced.submitted"):
        publish = f"apply_async/{name}"
        expected.append([publish, "request", None])
        expected += [[f"run/{name}", publish, state] for state in ("RETRY", "RETRY", "SUCCESS")]
    expected += [[f"apply_async/{name}", "request", None] for name in ("keyed.plain", "keyed.fail")]
    runs = (("keyed.plain", "keyed.plain", "SUCCESS"), ("keyed.fail", "keyed.fail", "FAILURE"))
    runs += (("keyed.tell", "keyed.plain", "SUCCESS"),)  # the rollback
    expected += [[f"run/{name}", f"apply_async/{publish}", state] for name, publish, state in runs]
    assert sorted(found["spans"], key=str) == sorted(expected, key=str)
    assert found["all"] == len(expected), "no span is left without its trace"
    assert found["tenants"] == {"traced.keyed": ["7"] * 3, "traced.submitted": ["7"] * 3}
    assert found["jobs"] == [2, 3, 4]


def test_a_model_of_pydantic_makes_the_key_and_reaches_the_job_as_it_reaches_a_message(apps: Installation) -> None:
    keyed = apps.app("keyed")
    order = keyed.Order(id=7, name="x")
    for call in (keyed.modelled.delay(order), keyed.coordinator.submit(None, keyed.modelled.s(order))):
        job = keyed.coordinator.job(call.id)
        assert (job.keys, job.args) == (("order/7",), ({"id": 7, "name": "x"},))
    with pytest.raises(ValueError, match="cannot be read"):
        keyed.modelled.delay({"name": "x"})
