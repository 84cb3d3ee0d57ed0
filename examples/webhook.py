"""Each alert goes to a webhook, here to a small HTTP server in place of a chat or a pager.

One job fails for good, another is held for an operator, a third one waits for a task that no node has. Maintenance
of the node calls `notify` at least once for each alert; if it raises, it calls it again after half a minute.

Run it: python examples/webhook.py
"""

import json
import logging
import os
import threading
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.request import Request, urlopen

from celery import Celery
from onemachine import Machine, until

from coordinator import Alert, Coordinator, alert_raised

app = Celery("webhook")
coordinator = Coordinator(app)


@app.task
def charge(order: int) -> None:
    raise ValueError(f"order {order}: the card is refused")


@alert_raised.connect
def notify(alert: Alert, **_: object) -> None:
    body = json.dumps(asdict(alert), default=str).encode()
    with urlopen(Request(os.environ["WEBHOOK"], body, {"Content-Type": "application/json"}), timeout=5):
        pass


calls: list[dict[str, Any]] = []


class Webhook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        calls.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    logging.disable(logging.WARNING)  # of the task that no node has
    with HTTPServer(("127.0.0.1", 0), Webhook) as server, Machine() as machine:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        os.environ["WEBHOOK"] = f"http://127.0.0.1:{server.server_port}"
        coordinator.submit("order/3", {"task": "webhook.refund"}, if_unknown="wait")
        machine.workers("webhook", coordinator, "one")
        coordinator.submit("order/1", charge.s(1), job_id="one")
        coordinator.submit("order/2", charge.s(2), job_id="two", on_failure="hold")
        until(lambda: len(calls) >= 3)
        for call in sorted(calls, key=lambda call: str(call["kind"])):
            machine.say(f"{call['kind']}: {call['message']}")
        server.shutdown()


if __name__ == "__main__":
    main()
