"""The app `keyed` under Sentry's SDK and OpenTelemetry's own instrumentation, which tell the log what they saw.

They stay in a process for good, so it is for workers and programs that say TEST_TRACED.
"""

import json
import os
from collections.abc import Sequence
from typing import Any

import sentry_sdk
from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.transport import Transport

from tests.harness.apps.keyed import _log, app, coordinator  # noqa: F401


def _tell(what: str, about: dict[str, Any]) -> None:
    _log.rpush(f"{os.environ['TEST_PREFIX']}.{what}", json.dumps(about))


class Told(Transport):
    """What Sentry would get."""

    def capture_envelope(self, envelope: Envelope) -> None:
        for item in envelope.items:
            if item.type in ("event", "transaction") and (event := item.payload.json):
                _tell("sentry", event)


class Spans(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            _tell("spans", json.loads(span.to_json()))
        return SpanExportResult.SUCCESS


if os.environ.get("TEST_TRACED"):
    sentry_sdk.init(
        dsn="https://key@example.org/1", transport=Told, traces_sample_rate=1.0, default_integrations=False,
        integrations=[CeleryIntegration()],
    )  # fmt: skip
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Spans()))
    trace.set_tracer_provider(provider)
    CeleryInstrumentor().instrument()
