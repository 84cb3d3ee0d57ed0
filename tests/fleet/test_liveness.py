"""The probe of deploy/kubernetes that tells whether a node lives: it asks neither Redis nor the broker."""

import signal
import subprocess

import yaml

from tests.harness.fleet import Fleet, Worker
from tests.harness.slapd import DEPLOY
from tests.harness.stopping import stop
from tests.harness.waiting import wait_until

MANIFESTS = yaml.safe_load_all((DEPLOY.parent / "kubernetes" / "coordinator.yaml").read_text())
(NODE,) = [
    container
    for document in MANIFESTS
    for container in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
    if container["name"] == "node"
]


def probe(worker: Worker, name: str = "livenessProbe") -> bool:
    """Run the probe as in a pod, where the only status folders are the node's own."""
    *shell, script = NODE[name]["exec"]["command"]
    script = script.replace("sleep 10", "sleep 2").replace(
        "celery-coordinator-*", f"celery-coordinator-*-{worker.pid}.*"
    )
    return not subprocess.run([*shell, script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def test_a_node_is_alive_while_redis_is_away_and_not_once_its_main_process_hangs(fleet: Fleet) -> None:
    worker = fleet.worker("one", 1, "--heartbeat-interval", "1")  # so that a heartbeat is what first meets the hang
    assert probe(worker, "startupProbe")
    fleet.server.pause()
    try:
        wait_until(lambda: probe(worker), 60, fleet.logs)  # four must fail in a row
    finally:
        fleet.server.resume()
    stop(worker.process)
    try:
        assert not probe(worker)
    finally:
        worker.kill(signal.SIGCONT)
    wait_until(lambda: probe(worker), 60, fleet.logs)
