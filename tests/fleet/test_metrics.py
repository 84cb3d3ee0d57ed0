"""What Prometheus reads agrees with what the tasks did, whatever was killed meanwhile."""

import os
import signal
from collections import Counter
from pathlib import Path
from urllib.request import urlopen

import pytest

from coordinator import Coordinator
from tests.coordinator.ops.metrics.test_collector import figures
from tests.harness import ports
from tests.harness.command import Command
from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until


def test_counters_and_times_agree_with_what_the_tasks_did_over_kills(fleet: Fleet) -> None:
    fleet.configure(sweep=0.05, heartbeat=0.5, retry_delay=0.01, node_ttl=4, lock_ttl=5, max_losses=1)
    first = fleet.worker("one", 2)
    shop, coordinator = fleet.shop, fleet.coordinator
    ended: Counter[str] = Counter()
    jobs = [
        coordinator.submit(f"k/{number}", signature)
        for number in range(20)
        for signature in (shop.work.s(f"w{number}", 0.02), shop.fail.s())
    ]
    for job in jobs:
        ended[coordinator.wait(job, 60).state] += 1
    of = 'name="tests.harness.apps.shop.{}"'.format
    ran = {name: f"job_run_seconds_count{{{of(name)}}}" for name in ("work", "fail")}
    wait_until(lambda: {name: figures(coordinator).get(one) for name, one in ran.items()} == {"work": 20, "fail": 20})
    coordinator.submit("dies", shop.die.s("dies"), job_id="dies")
    coordinator.wait("dies", 60)
    coordinator.submit("long", shop.work.s("long", 1.0), job_id="long")
    fleet.begun("long")
    for child in first.children():
        child.kill()
    assert coordinator.wait("long", 60).losses >= 1
    coordinator.submit("more", shop.work.s("more"), job_id="more")
    coordinator.wait("more", 60)
    first.kill(signal.SIGKILL)  # its supervisor sends what its last jobs took, and signs off
    wait_until(lambda: not fleet.nodes())

    found, stamps = figures(coordinator), fleet.stamps()
    runs = sum(stamp.what == "end" for stamp in stamps)
    assert ended == {"succeeded": 20, "failed": 20}
    assert found[f'jobs_total{{{of("work")},outcome="succeeded"}}'] == 22 == runs
    assert found[f'jobs_total{{{of("fail")},outcome="failed"}}'] == 20
    assert found[f'jobs_total{{{of("die")},outcome="failed"}}'] == 1
    assert found[f"submitted_total{{{of('work')}}}"] == 22
    assert found[f"losses_total{{{of('die')}}}"] == 2 == sum(stamp.name == "dies" for stamp in stamps)
    losses = sum(number for name, number in found.items() if name.startswith("losses_total"))
    assert found['rescues_total{kind="lost"}'] == losses
    assert (found[ran["fail"]], found[ran["work"]]) in ((20, 21), (20, 22)), "a kill may lose a second of the times"
    assert found[f'job_wait_seconds_count{{{of("fail")},reason="lane"}}'] == 20


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_the_figures_until_a_signal_reaches_any_of_its_threads(
    coordinator: Coordinator, tmp_path: Path, number: signal.Signals
) -> None:
    port, settings = ports.free_port(), coordinator.settings
    env = {"COORDINATOR_URL": str(settings.url), "COORDINATOR_PREFIX": settings.prefix}
    with Command(tmp_path / "metrics", "metrics", "--port", str(port), env=env) as command:
        command.says(f"http://127.0.0.1:{port}/metrics")
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert b"coordinator_redis_up 1.0" in answer.read()
        last = max(int(task.name) for task in Path(f"/proc/{command.process.pid}/task").iterdir())
        os.kill(last, number)  # the system asks this thread first
        assert command.process.wait(60) == 0
