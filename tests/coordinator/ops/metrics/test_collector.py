"""The figures for Prometheus: from Redis alone, and in few series whatever there is of jobs."""

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from coordinator import Coordinator
from coordinator.core.fleet.measures import BOUNDS, Measures, Reader
from coordinator.local.redis import free_port
from coordinator.ops.extension import Extension
from coordinator.ops.metrics import register, registry_of
from tests.harness.command import Call, refused, told
from tests.harness.hand_node import Puppet, Taken


def figures(coordinator: Coordinator) -> dict[str, float]:
    found = re.findall(r"^coordinator_(\S+) (\S+)$", generate_latest(registry_of(coordinator)).decode(), re.MULTILINE)
    return {name: float(number) for name, number in found}


def test_counters_say_what_became_of_jobs_and_an_operator_s_retry_takes_nothing_back(
    coordinator: Coordinator, node: Puppet
) -> None:
    node.submit("a", job_id="good")
    node.submit("b", job_id="bad")
    node.submit("c", job_id="again", max_attempts=3)
    node.submit("d", job_id="lost", task="shop.other")
    by_id = {taken.id: taken for taken in (node.must_take() for _ in range(4))}
    node.finish(by_id["good"])
    node.finish(by_id["bad"], "failed")
    node.finish(by_id["again"], "raised", delay=60_000)
    node.lose(by_id["lost"])
    second = node.must_take()
    assert (second.id, node.finish(by_id["lost"]).verdict) == ("lost", "lost")
    found = figures(coordinator)
    work, other = 'name="shop.work"', 'name="shop.other"'
    expected = {
        f'jobs_total{{{work},outcome="succeeded"}}': 1, f'jobs_total{{{work},outcome="failed"}}': 1,
        f"submitted_total{{{work}}}": 3, f"submitted_total{{{other}}}": 1, f"retries_total{{{work}}}": 1,
        f"losses_total{{{other}}}": 1, f"faults_total{{{other}}}": 0, 'rescues_total{kind="lost"}': 1,
        "leases_lost_total": 0, "fences_refused_total": 1, 'jobs{state="running"}': 1, 'jobs{state="retrying"}': 1,
        'node_slots{node="one"}': 4, 'node_busy{node="one"}': 1, 'node_up{node="one"}': 1, "redis_up": 1,
    }  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected
    node.lapse("lost")
    node.sweep()
    coordinator.retry("bad")
    found = figures(coordinator)
    assert found[f'jobs_total{{{work},outcome="failed"}}'] == 1, "a counter that went back would look like a restart"
    assert (found["leases_lost_total"], found['rescues_total{kind="lost"}']) == (1, 2)
    coordinator.cancel("again")
    node.order()


def test_waits_and_locks_are_read_and_the_longest_wait_counts(coordinator: Coordinator, node: Puppet) -> None:
    client, key = node.store._client, node.store.key
    node.submit("a", job_id="first")
    node.submit("a", job_id="second")
    node.submit("h", job_id="held", on_failure="hold")
    coordinator.pause("p", why="a test")
    node.submit("p", job_id="behind the pause")
    by_id = {taken.id: taken for taken in (node.must_take(), node.must_take())}
    node.finish(by_id["held"], "failed")
    client.hset(key("job", "second"), "submitted", node.store.now() - 50_000)
    client.hset(key("job", "held"), mapping={"started": node.store.now() - 170_000, "readied": 0})
    client.hset(key("job", "held"), "submitted", node.store.now() - 180_000)
    with coordinator.lock("in code"):
        found = figures(coordinator)
    assert (found["locks_held"], found['lanes{state="paused"}'], found['lanes{state="used"}']) == (1, 1, 4)
    assert 50 <= found['oldest_wait_seconds{reason="lane"}'] < 70
    assert 170 <= found['oldest_wait_seconds{reason="held"}'] < 180
    assert 0 < found['oldest_wait_seconds{reason="paused"}'] < 50
    assert found['oldest_wait_seconds{reason="slot"}'] == 0
    node.finish(by_id["first"])
    coordinator.resume("p")
    coordinator.cancel("held")
    node.order()


def waits(node: Puppet, claim: Any = None) -> dict[str, int]:
    """What the job waited for, and how long, in whole seconds. Without a claim, of the next one."""
    bell = f"1-{node.store._client.incr(node.store.key('bells'))}"
    node.store._client.zadd(node.store.key("rung", "one"), {bell: 2**53})
    claim = claim or node.store.step("runner_take", "one", "a", f"r{bell}", bell, f"t{bell}", node.ttl)
    words = (claim[-1] or b"").decode().split()
    return {reason: int(ms) // 1000 for reason, ms in zip(words[::2], words[1::2], strict=True)}


def lose(node: Puppet, job_id: str) -> None:
    token = node.store._client.hget(node.store.key("job", job_id), "token")
    node.store.step("job_lose", job_id, token or b"", "lost", '"gone"', 0)


def test_a_claim_tells_how_long_the_job_waited_for_its_hour_its_lane_a_slot_and_its_retry(
    coordinator: Coordinator, node: Puppet
) -> None:
    client, key, before = node.store._client, node.store.key, {"submitted": node.store.now() - 9000}
    node.submit("a", job_id="first")
    client.hset(key("job", "first"), mapping={**before, "readied": node.store.now() - 4000})
    assert waits(node) == {"lane": 5, "slot": 4}
    lose(node, "first")
    assert waits(node) == {}, "it goes on"
    coordinator.release("a")

    node.submit("later", options={"countdown": 60}, max_attempts=3, job_id="later")
    client.hset(key("job", "later"), mapping=before)
    client.zadd(key("due"), {"later": 1})
    node.sweep()
    assert waits(node) == {"eta": 9, "lane": 0, "slot": 0}
    token = client.hget(key("job", "later"), "token") or b""
    node.finish(Taken("later", token.decode(), "r", 1, 0, 0), "raised", delay=60_000)
    client.hincrby(key("job", "later"), "waited", -7000)
    coordinator.retry("later")
    assert waits(node) == {"retry": 7}
    lose(node, "later")
    assert waits(node) == {}, "it was told"
    coordinator.release("later")


def test_a_claim_tells_how_long_the_job_waited_for_a_quota_or_a_pause(coordinator: Coordinator, node: Puppet) -> None:
    client, key, before = node.store._client, node.store.key, {"submitted": node.store.now() - 9000}
    coordinator.quota("two", concurrency=2)
    for number in range(3):
        node.submit(f"wide/{number}", job_id=f"wide{number}", uses="two")
    assert [waits(node) for _ in range(2)] == [{"lane": 0, "slot": 0}] * 2
    client.hset(key("job", "wide2"), mapping=before | {"lacked": node.store.now() - 4000})
    token, runner = (client.hget(key("job", "wide0"), field) or b"" for field in ("token", "runner"))
    rest = ("succeeded", '""', 0, "", "", "", "", "one", runner, "next", node.ttl)
    assert waits(node, node.store.step("job_finish", "wide0", token, *rest)[2]) == {"quota": 4, "lane": 5, "slot": 0}

    coordinator.pause("p")
    node.submit("p", job_id="paused")
    client.hset(key("job", "paused"), mapping=before)
    client.hset(key("paused"), "p", json.dumps({"at": node.store.now() - 4000, "by": "ann", "why": ""}))
    coordinator.resume("p")
    assert waits(node) == {"paused": 4, "lane": 5, "slot": 0}
    for lane in ("wide/1", "wide/2", "p"):
        coordinator.release(lane)


def test_quotas_are_counted_without_their_names(coordinator: Coordinator, node: Puppet) -> None:
    coordinator.quota("tenant/*", concurrency=1)
    coordinator.quota("licence", concurrency=3)
    coordinator.quota("api", concurrency=1)
    coordinator.cool_down("api", 3600)
    for number in range(3):
        node.submit([], job_id=f"acme{number}", uses={"tenant/acme": 1, "licence": 2})
    node.submit([], job_id="cooled", uses="api")
    taken = node.must_take()
    found = figures(coordinator)
    expected = {
        'quotas{state="known"}': 3, 'quotas{state="declared"}': 2, 'quotas{state="cooling"}': 1, "quota_units_used": 3,
        'quota_waiting{reason="quota"}': 2, 'quota_waiting{reason="rate"}': 0, 'quota_waiting{reason="cooldown"}': 1,
        "quotas_exceeded_total": 0,
    }  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected
    assert not [name for name in found if "acme" in name]
    assert 'oldest_wait_seconds{reason="quota"}' in found
    node.finish(taken)
    coordinator.cool_down("api")
    node.order()


def test_what_processes_measured_reaches_redis_once(node: Puppet, tmp_path: Path) -> None:
    measures, reader = Measures(tmp_path), Reader(tmp_path)
    for seconds in (0.01, 0.05, 0.06, 4000):
        measures.add("run", "shop.work", seconds)
    measures.write()
    batch = reader.batch()
    assert batch == reader.batch(), "until it was sent"
    assert batch
    for _ in range(3):
        node.nodes.beat("one", "a", {}, None, batch)
    reader.sent()
    assert reader.batch() is None
    measures.add("run", "shop.work", 1.0)
    measures.write()
    of_a_dead_process = {"counts": {"slot\nshop.work\n0": 2}}
    (tmp_path / "1.1.measures").write_text(json.dumps(of_a_dead_process))
    again = Reader(tmp_path).batch()  # the supervisor was killed and started again
    assert again
    assert again["add"] == {"run\nshop.work\n4": 1, "run\nshop.work\nsum": 1000, "slot\nshop.work\n0": 2}
    assert not (tmp_path / "1.1.measures").exists()
    node.nodes.beat("one", "a", {}, None, again)
    with Coordinator(url=node.store.settings.url, prefix=node.store.settings.prefix) as coordinator:
        found = figures(coordinator)
    run = [found[f'job_run_seconds_bucket{{le="{bound}",name="shop.work"}}'] for bound in (*BOUNDS, "+Inf")]
    assert run == [2, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5]
    assert found['job_run_seconds_sum{name="shop.work"}'] == pytest.approx(4001.12)
    assert found['job_wait_seconds_count{name="shop.work",reason="slot"}'] == 2


FILL = """
for i = 1, ARGV[1] do
  local id, key = 'j' .. i, 'many/' .. i
  redis.call('HSET', KEYS[1] .. 'job:' .. id, 'state', 'waiting', 'keys', key, 'task', 'shop.work', 'class', 'shop',
    'submitted', '1')
  redis.call('ZADD', KEYS[1] .. 'line:' .. key, i, id)
  redis.call('ZADD', KEYS[1] .. 'lanes', 0, key)
end
"""


def test_a_hundred_thousand_keys_make_no_more_series_than_ten(coordinator: Coordinator, node: Puppet) -> None:
    client: Any = node.store._client
    counted = []
    for keys in (10, 100_000):
        client.eval(FILL, 1, node.store.prefix, keys)
        client.hset(node.store.key("counts"), "created\nshop.work", keys)
        found = figures(coordinator)
        assert found['lanes{state="used"}'] == keys
        assert found["scrape_seconds"] < 10
        counted.append(found.keys())
    assert counted[0] == counted[1]
    names = list(client.scan_iter(f"{node.store.prefix}[jl]*", 10_000))
    for first in range(0, len(names), 10_000):
        client.unlink(*names[first : first + 10_000])
    client.hdel(node.store.key("counts"), "created\nshop.work")


def test_the_lateness_of_the_schedule_is_that_of_its_beats_and_of_what_is_not_sent(
    coordinator: Coordinator, node: Puppet
) -> None:
    client, key, now = node.store._client, node.store.key, node.store.now()
    assert figures(coordinator)["schedule_late_seconds"] == 0
    client.sadd(key("schedule-sources"), "table")
    client.hset(key("schedule", "table"), "seen", now - 90_000)
    assert figures(coordinator)["schedule_late_seconds"] == 0, "it has no entries"
    client.sadd(key("schedule-entries", "table"), "nightly")
    assert 90 <= figures(coordinator)["schedule_late_seconds"] < 150
    client.zadd(key("schedule-unsent"), {"nightly": now - 200_000})
    assert 200 <= figures(coordinator)["schedule_late_seconds"] < 260


def test_a_redis_that_is_away_leaves_that_figure_alone(coordinator: Coordinator) -> None:
    with Coordinator(url=f"redis://127.0.0.1:{free_port()}/0") as away:
        found = figures(away)
    assert (found.keys(), found["redis_up"]) == ({"redis_up", "scrape_seconds"}, 0)


def test_an_extension_s_figures_stand_beside_them_and_a_registry_has_each_once(coordinator: Coordinator) -> None:
    coordinator.extend(Extension("shop", metrics=lambda: [GaugeMetricFamily("shop_tills", "Tills.", 3)]))
    registry = CollectorRegistry()
    for _ in range(2):
        register(coordinator, registry)
    found = generate_latest(registry).decode()
    assert "shop_tills 3.0" in found
    assert found.count("\ncoordinator_redis_up ") == 1


def test_the_command_prints_the_figures_or_says_why_it_cannot_serve_them(coordinator: Coordinator, call: Call) -> None:
    assert "coordinator_redis_up 1.0" in told(call("metrics"))
    only_reads = coordinator.settings.url.replace("://", "://only-reads:pw@")
    coordinator.store._client.acl_setuser("only-reads", True, passwords=["+pw"], categories=["+@read", "+@connection"])
    assert "forbids that to this user" in refused(call("metrics", COORDINATOR_URL=only_reads))
    coordinator.store._client.acl_deluser("only-reads")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot serve at 127.0.0.1" in refused(call("metrics", "--port", str(taken.getsockname()[1])))
