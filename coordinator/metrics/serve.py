"""Serves the figures over HTTP, for fleets without Flower."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from coordinator.metrics.collector import register

if TYPE_CHECKING:
    from coordinator.client.coordinator import Coordinator


def text_of(coordinator: Coordinator) -> bytes:
    """The figures now, as Prometheus reads them."""
    registry = CollectorRegistry()
    register(coordinator, registry)
    return generate_latest(registry)


def server_of(coordinator: Coordinator, host: str, port: int) -> ThreadingHTTPServer:
    """A server of the figures, which listens; `serve_forever` answers. Raises OSError where the port is in use."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.partition("?")[0] == "/metrics"
            body = text_of(coordinator) if found else b"The figures are at /metrics\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE_LATEST if found else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A scrape each few seconds is no news."""

    return ThreadingHTTPServer((host, port), Handler)
