"""What `deploy/` has: promtool runs each alert, systemd and Kubernetes know what the units and manifests say."""

import json
import re
import subprocess
import sys
from pathlib import Path
from runpy import run_path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from prometheus_client import generate_latest

from coordinator import Coordinator, Settings
from coordinator.ops.metrics import registry_of
from tests.harness.hand_node import Puppet

DEPLOY = Path(__file__).parent.parent / "deploy"
RULES: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
ON = 'instance="a"'
NODE = f'coordinator_node_up{{{{{ON},node="{{}}"}}}}'
UP = {f"coordinator_redis_up{{{ON}}}": "1x40"}
# For each alert: a fleet for which it fires, and one for which it does not, each a value a minute.
FLEETS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "CoordinatorRedisDown": ({f"coordinator_redis_up{{{ON}}}": "0x40"}, UP),
    "CoordinatorNoNode": (UP, UP | {f'coordinator_node_up{{{ON},node="n1"}}': "1x40"}),
    "CoordinatorNodesFull": (
        {f'coordinator_node_busy{{{ON},node="n1"}}': "4x40", f'coordinator_node_slots{{{ON},node="n1"}}': "4x40"},
        {f'coordinator_node_busy{{{ON},node="n1"}}': "3x40", f'coordinator_node_slots{{{ON},node="n1"}}': "4x40"},
    ),
    "CoordinatorHighFailRate": (
        {f'coordinator_jobs_total{{{ON},name="t",outcome="{end}"}}': f"0+{by}x40" for end, by in (
            ("succeeded", 90), ("failed", 10))},
        {f'coordinator_jobs_total{{{ON},name="t",outcome="{end}"}}': f"0+{by}x40" for end, by in (
            ("succeeded", 90), ("cancelled", 10))},
    ),
    "CoordinatorJobHeld": (
        {f'coordinator_jobs{{{ON},state="held"}}': "1x40"}, {f'coordinator_jobs{{{ON},state="held"}}': "0x40"},
    ),
    "CoordinatorRollbackFailed": (
        {f'coordinator_faults_total{{{ON},name="t"}}': "0x25 1x15"},
        {f'coordinator_faults_total{{{ON},name="t"}}': "7x40"},
    ),
    "CoordinatorLongWait": (
        {f'coordinator_oldest_wait_seconds{{{ON},reason="lane"}}': "0x10" + " 1000 0 0" * 10},
        {f'coordinator_oldest_wait_seconds{{{ON},reason="held"}}': "0+60x40"},
    ),
    "CoordinatorRunsLost": (
        {f'coordinator_losses_total{{{ON},name="t"}}': "0+1x40"},
        {f'coordinator_losses_total{{{ON},name="t"}}': "9x40"},
    ),
    "CoordinatorLeasesLost": (
        {f"coordinator_leases_lost_total{{{ON}}}": "0x25 2x15"}, {f"coordinator_leases_lost_total{{{ON}}}": "2x40"},
    ),
    "CoordinatorNodeLost": (
        {f"coordinator_nodes_lost_total{{{ON}}}": "0x25 1x75"}, {f"coordinator_nodes_lost_total{{{ON}}}": "1x100"},
    ),
    "CoordinatorFewerNodes": (
        {NODE.format("one"): "1x100", NODE.format("two"): "1x20 _x80"},
        {NODE.format("one"): "1x100", NODE.format("two"): "_x20 1x80"},
    ),
    "CoordinatorScheduleLate": (
        {f"coordinator_schedule_late_seconds{{{ON}}}": "0+10x40"},
        {f"coordinator_schedule_late_seconds{{{ON}}}": "0x40"},
    ),
}  # fmt: skip


def promtool(*args: str, given: bytes = b"") -> str:
    done = subprocess.run(["promtool", *args], input=given, capture_output=True)
    assert not done.returncode, done.stdout.decode() + done.stderr.decode()
    return done.stdout.decode()


def test_each_alert_is_tried() -> None:
    assert set(FLEETS) == {rule["alert"] for rule in RULES}
    assert all(rule["annotations"].keys() == {"summary", "runbook"} for rule in RULES)


@pytest.mark.parametrize("fires", [True, False])
def test_each_alert_fires_for_its_trouble_and_not_without(fires: bool, tmp_path: Path) -> None:
    """promtool fills in the texts, too, and compares what fires: an alert that is not expected is an error."""
    tests = []
    for rule in RULES:
        series = FLEETS[rule["alert"]][0 if fires else 1]
        at = "70m" if "1h" in rule["expr"] else "30m"
        alert = {"eval_time": at, "alertname": rule["alert"]}
        tests.append(
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {"expr": f'count(ALERTS{{alertname="{rule["alert"]}",alertstate="firing"}})', "eval_time": at}
                    | {"exp_samples": [{"labels": "{}", "value": 1}] if fires else []}
                ],
                **({} if fires else {"alert_rule_test": [alert | {"exp_alerts": []}]}),
            }
        )
    file = tmp_path / "tests.yml"
    file.write_text(
        json.dumps({"rule_files": [str(DEPLOY / "alerts.yml")], "evaluation_interval": "1m", "tests": tests})
    )
    assert "SUCCESS" in promtool("test", "rules", str(file))


def test_the_figures_that_alerts_and_panels_name_are_there_and_sound(coordinator: Coordinator, node: Puppet) -> None:
    node.submit("a")
    taken = node.must_take()
    node.nodes.beat("one", "a", {}, None, {"of": "1", "add": {"run\nshop.work\n3": 1, "lane\nshop.work\n0": 1}})
    node.lose(taken)
    node.submit("b", on_failure="hold", rollback={"task": "shop.other"})
    for _ in range(3):
        node.finish(node.must_take(), "failed")
    found = generate_latest(registry_of(coordinator))
    promtool("check", "metrics", given=found)
    shown = set(re.findall(r"^(coordinator_\w+)", found.decode(), re.MULTILINE))
    dashboard = json.loads((DEPLOY / "grafana" / "coordinator.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    named = set(re.findall(r"coordinator_\w+", " ".join([*asked, *(rule["expr"] for rule in RULES)])))
    assert named - shown == set()
    assert {name.removesuffix("_sum").removesuffix("_count") for name in shown} - {
        name.removesuffix("_bucket") for name in named
    } <= {f"coordinator_job_{what}_seconds_bucket" for what in ("run", "wait")}, "each figure has its place in a panel"
    page = (DEPLOY.parent / "docs" / "metrics.md").read_text()
    figure = re.compile(r"coordinator_(\w+?)(?:_bucket|_count|_sum)?")
    assert {name for name in shown if (own := figure.fullmatch(name)) and f"`{own[1]}`" not in page} == set()
    coordinator.cancel(coordinator.lane("b").jobs[0])


KUBERNETES: dict[tuple[str, str], dict[str, Any]] = {
    (document["kind"], document["metadata"]["name"]): document
    for document in yaml.safe_load_all((DEPLOY / "kubernetes" / "coordinator.yaml").read_text())
}
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_no_fault_with(unit: Path, tmp_path: Path) -> None:
    """Its programs are those of this checkout; it tells faults in words alone, with status 0."""
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/coordinator/.venv/bin", str(Path(sys.executable).parent)))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_unit_stops_a_node_as_its_jobs_need() -> None:
    unit = (DEPLOY / "systemd" / "coordinator-node@.service").read_text()
    assert {"KillMode=mixed", "Restart=always", "StartLimitIntervalSec=0"} <= {*unit.splitlines()}
    assert int(re.findall(r"TimeoutStopSec=(\d+)", unit)[0]) > Settings().drain_timeout


@pytest.mark.parametrize("document", KUBERNETES.values(), ids=[" ".join(name) for name in KUBERNETES])
def test_kubernetes_knows_each_word_of(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, "1.31", strict=True)


def test_a_pod_of_a_node_has_the_time_that_its_jobs_need_and_goes_alone() -> None:
    settings = Settings()
    grace = KUBERNETES["StatefulSet", "cn"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > settings.drain_timeout
    assert grace > settings.slice + settings.lock_ttl
    assert KUBERNETES["PodDisruptionBudget", "cn"]["spec"]["maxUnavailable"] == 1


def test_no_probe_asks_redis_or_the_broker() -> None:
    probes = [
        " ".join(probe.get("exec", {}).get("command", []))
        for document in KUBERNETES.values()
        for container in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
        for name, probe in container.items()
        if name.endswith("Probe")
    ]
    assert len(probes) == 4
    assert not [probe for probe in probes if re.search(r"celery .*(inspect|status)|coordinator |redis-cli", probe)]


def test_readme_has_whole_addresses_on_the_page_of_a_package() -> None:
    script = run_path(str(DEPLOY / "release.py"))
    readme = (DEPLOY.parent / "README.md").read_text()
    assert "![" not in readme, "a relative picture is broken there"
    text = script["with_addresses"](readme, "https://repository.example/")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 10
    assert [link for link in links if not link.startswith("https://")] == []
    assert any("/blob/v" in link and link.endswith("/docs/tutorial.md") for link in links)
    with pytest.raises(script["Failed"], match="no address for Repository, Documentation, Changelog, Security"):
        script["check_addresses"]()
