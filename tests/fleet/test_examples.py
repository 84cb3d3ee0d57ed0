"""Every example runs as its first page says, and shows what it claims."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.command import environment
from tests.harness.warm import python

ROOT = Path(__file__).parents[2]
EXAMPLES = {path.name for path in (ROOT / "examples").glob("*.py")} - {"onemachine.py"}


def shown(name: str, fresh: bool = False, **given: str) -> list[str]:
    """What `python examples/NAME` prints; `fresh`: it and all that it starts load the libraries themselves."""
    if fresh:
        argv = [sys.executable, f"examples/{name}"]
        done = subprocess.run(argv, cwd=ROOT, env=environment(**given), capture_output=True, text=True, timeout=100)
    else:
        done = python([f"examples/{name}"], ROOT, environment(**given), 100)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.splitlines()


def test_whole_chains_of_two_apps_run_one_after_another_over_a_resource() -> None:
    lines = shown("resource_lock.py")
    assert lines[0] == "in line: load-1, report-1, load-2, report-2"
    assert lines[1].startswith("Lane database/stock is paused by ")
    steps = [line for line in lines if line.split(":")[0] in ("load-1", "report-1", "report-2")]
    assert steps == [
        "load-1: fetch",
        "load-1: load 1000 rows",
        "load-1: index",
        "report-1: freeze",
        "report-1: read",
        "report-2: freeze",
        "report-2: read",
    ]
    ends = [line for line in lines if " is " in line]
    assert ends[-5:-1] == [
        "load-1 is succeeded: 1000 rows loaded",
        "report-1 is succeeded: report read",
        "load-2 is cancelled",
        "report-2 is succeeded: report read",
    ]
    assert lines[-1] == "then the lane is empty"


def test_a_change_that_three_nodes_hear_of_is_applied_once_also_when_the_first_listener_is_killed() -> None:
    lines = shown("follower_also.py")
    for change, first in (("link-7-down", "started"), ("link-7-up", "started, and is killed")):
        heard = sorted(line.partition(": ")[2] for line in lines if f"heard of {change}:" in line)
        assert heard == ["duplicate"] * 2 + [first]
        assert lines.count(f"{change} is applied") == 1
        assert f"{change}: succeeded, applied 1 time, in attempt 1" in lines


def test_interfaces_of_a_port_are_bound_in_order_ports_in_parallel_and_what_fails_is_rolled_back() -> None:
    lines = shown("interfaces_of_a_port.py")
    for port in ("port-1", "port-2"):
        assert [line for line in lines if line.startswith(port)] == [
            f"{port}: created",
            f"{port}: vlan-12 is bound, attempt 1",
            f"{port}: vlan-13 is bound, attempt 1",
            f"{port}: vlan-13 is bound, attempt 2",
            f"{port}: vlan-13 is unbound again, the tag is taken",
            f"{port}: vlan-14 is bound, attempt 1",
            f"{port}: succeeded, succeeded, rolled_back, succeeded",
        ]
    assert lines[-1] == "both ports were created at the same time: yes"


def test_a_web_application_waits_for_twenty_jobs_at_the_same_time() -> None:
    # FastAPI wants OpenTelemetry, without which most processes of the tests start.
    assert shown("web.py", fresh=True, PYTHONPATH="") == [
        "order 0 is shipped",
        "order 19 is shipped",
        "20 orders are shipped",
        "a job that nobody knows: 404",
    ]


def test_what_arrives_in_any_order_is_worked_on_in_the_order_of_its_names() -> None:
    lines = shown("sorter.py")
    assert lines[:2] == [
        "held: stock/2-by-hand, stock/3.xml, stock/9.xml, stock/10.xml",
        "stock/3.xml is cancelled",
    ]
    loaded = [line.partition(" ")[0] for line in lines if line.endswith(" is loaded")]
    assert loaded == ["2-by-hand", "9.xml", "10.xml", "1.xml"]
    assert "held: stock/1.xml" in lines
    assert lines[-1] == "the last one is succeeded"


def test_of_two_servers_one_does_the_work_once_and_takes_over_from_one_that_is_killed() -> None:
    lines = shown("grab.py")
    (worked,) = [line for line in lines if "works on report 1" in line]
    winner = worked.partition(" works")[0]
    assert lines.count(f"server 1: report 1 is complete, made by {winner}") == 2
    assert lines.count(f"server 2: report 1 is complete, made by {winner}") == 2
    assert lines[-5:] == [
        "server 1 is killed",
        "server 2 works on report 2, attempt 2",
        "server 2: report 2 is complete, made by server 2",
        "report 2: complete, server 2, attempt 2",
        f"report 1: complete, {winner}, attempt 1",
    ]


def test_of_three_servers_one_does_each_slot_also_those_of_one_that_is_killed() -> None:
    lines = shown("resilience.py")
    killed = next(line for line in lines if line.endswith("is killed")).removesuffix(" is killed")
    assert lines[-1] == "8 slots, 8 complete"
    worked = [line.partition(" works on slot ")[::2] for line in lines if " works on slot " in line]
    last = [slot.partition(",")[0] for name, slot in worked if name == killed][-1]
    again = [(name, slot) for name, slot in worked if slot == f"{last}, attempt 2"]
    assert len(again) == 1
    assert again[0][0] != killed
    assert len(worked) == 9, "the killed server's slot was begun twice, all others once"
    seen = {name: [line.partition(": ")[2] for line in lines if line.startswith(f"{name} sees")] for name, _ in again}
    for name in {line.partition(" sees")[0] for line in lines if " sees: " in line}:
        assert [line.partition(": ")[2] for line in lines if line.startswith(f"{name} sees")] == next(
            iter(seen.values())
        )


def test_each_alert_is_sent_to_a_webhook() -> None:
    assert shown("webhook.py")[-3:] == [
        "failed: job one of webhook.charge (lane order/1) failed for good: ValueError: order 1: the card is refused",
        "held: job two of webhook.charge (lane order/2) is held for an operator: ValueError: order 2: the card is "
        "refused",
        "no_node: task webhook.refund: 1 job waits for a task that no node has",
    ]


def test_an_index_of_titles_takes_each_event_once_and_a_new_one_catches_up() -> None:
    assert shown("titles.py") == [
        "two objects are new: ['Lakes and rivers', 'Rivers of the north']",
        "one is changed, one gone: [], ['Streams of the north']",
        f"all events again: {['a repeat'] * 4}",
        f"a new index from number 0: {['taken'] * 4}",
        "it has the same: [], ['Streams of the north']",
    ]


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_example_has_a_test_and_a_line_on_their_page(name: str) -> None:
    assert f'shown("{name}"' in Path(__file__).read_text()
    assert f"examples/{name}" in (ROOT / "examples" / "README.md").read_text()
