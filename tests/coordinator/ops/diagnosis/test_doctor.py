"""Each finding of `doctor` is there for a planted fault, and not before it; what it says to do mends it."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator import Coordinator, Entry
from coordinator.core.finding import Finding
from coordinator.local.redis import free_port
from coordinator.ops.diagnosis import unowned
from coordinator.ops.diagnosis.doctor import examine
from coordinator.ops.extension import Extension
from tests.harness.command import Call
from tests.harness.hand_node import Puppet
from tests.harness.produced import findings
from tests.harness.redis import RedisServer

ROOT = Path(__file__).parents[4]
# The tests' shared Redis keeps nothing on disk, and may be busy.
OF_THIS_SERVER = {"redis.persistence", "redis.busy", "redis.slow"}
WAITS_FOR_PEOPLE = {"job.held", "lane.paused"}


@pytest.fixture
def node(coordinator: Coordinator) -> Puppet:
    puppet = Puppet(coordinator.store)
    puppet.up()
    puppet.sweep()
    return puppet


COMMANDS = ("coordinator ", "redis-", "celery ", "timedatectl ", "COORDINATOR_")


def findings_of(node: Puppet) -> dict[str, Finding]:
    """The findings by code. Each fix begins with a command, which can be pasted; a hint stands behind it as a comment.

    `redis.away` and `redis.refuses` have none: only people can mend a server that does not answer.
    """
    found = examine(node.store)
    own = [one for one in found if one.code not in ("redis.away", "redis.refuses", "redis.functions", "doctor.part")]
    assert [str(one) for one in own if not one.fix.startswith(COMMANDS)] == []
    pasted = subprocess.run(["bash", "-n"], input="\n".join(one.fix for one in own), text=True, capture_output=True)
    assert pasted.stderr == ""
    return {one.code: one for one in found if one.code not in OF_THIS_SERVER}


def run_redis_cli(node: Puppet, fix: str) -> None:
    """Do what a fix says: its redis-cli commands, which name the server."""
    commands = [part for part in fix.split(" && ") if part.startswith("redis-cli ")]
    assert commands
    for command in commands:
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
        assert (done.stdout.strip(), done.stderr) == ("1", "")


def test_a_sound_installation_has_no_findings_whatever_its_jobs_do(coordinator: Coordinator, node: Puppet) -> None:
    coordinator.quota("two", concurrency=3)
    coordinator.quota("slow", rate="1/h")
    node.submit("held", on_failure="hold", job_id="h")
    node.finish(node.must_take(), "failed")
    node.submit("back", max_attempts=3, job_id="r")
    node.finish(node.must_take(), "raised", delay=60_000)
    for number in range(3):
        node.submit("line", job_id=f"l{number}")
        node.submit(["line", "other"], job_id=f"both{number}")
        node.submit("wide", job_id=f"w{number}", uses="two")
        node.submit([], job_id=f"free{number}", uses={"two": 1, "slow": 1})
    coordinator.pause("paused", why="a test")
    node.submit("paused", job_id="p")
    node.submit("later", options={"countdown": 60}, job_id="c")
    node.submit([], job_id="two", uses="two")
    with coordinator.lock("in code", uses="two"):
        taken = [node.must_take(), node.must_take()]
        assert findings_of(node).keys() == WAITS_FOR_PEOPLE
    for one in taken:
        node.finish(one)
    node.order()
    assert findings_of(node).keys() == WAITS_FOR_PEOPLE
    coordinator.drop_quota("slow")
    coordinator.resume("paused")
    for job_id in ("h", "r", "c"):
        coordinator.cancel(job_id)
    node.order()


def test_a_job_that_waits_on_a_free_lane_is_found_and_moves_on(coordinator: Coordinator, node: Puppet) -> None:
    client, key = node.store._client, node.store.key
    node.submit("a", job_id="one")
    client.hset(key("job", "one"), "state", "waiting")
    for list_of_ready in (key("ready"), key("ready", "shop\ncelery"), key("group", "\nshop\ncelery")):
        client.delete(list_of_ready)
    client.srem(key("state", "ready"), "one")
    found = findings_of(node)
    assert str(found["lane.stuck"]) == "error [lane.stuck] (lane a) job one waits in front of it, and nothing holds it"
    assert found["lane.stuck"].fix.startswith("coordinator move --to front one --why")
    coordinator.move("one", to="front")
    assert node.order() == ["one"]
    assert findings_of(node) == {}


def test_results_that_are_overdue_are_found_whenever_the_next_try_is_due(node: Puppet) -> None:
    owed, now = node.store.key("unsent", "shop"), node.store.now()

    def due(at: int) -> None:
        node.store._client.zadd(owed, {"j": at})

    def tried() -> None:
        """Maintenance takes it, and the backend does not."""
        due(now)
        assert node.store.step("notices_take", "shop", 1)

    node.submit("a", job_id="j", tell=True)
    node.finish(node.must_take())
    assert findings_of(node) == {}, "its runner sends it"
    due(now - 61_000)
    assert str(findings_of(node)["results.overdue"]) == (
        "error [results.overdue] (app shop) the results, links and canvases of 1 ended jobs cannot be sent"
    )
    tried()
    assert findings_of(node) == {}, "the first try goes on"
    tried()
    assert "results.overdue" in findings_of(node)
    due(now + 1000)
    assert "results.overdue" in findings_of(node)
    node.store.step("notices_sent", "shop", "j")
    assert findings_of(node) == {}


def test_a_lock_of_a_lane_that_no_job_in_front_has_is_found(coordinator: Coordinator, node: Puppet) -> None:
    coordinator.pause("a")
    node.submit("a", job_id="one")
    client, slot = node.store._client, node.store.key("lock", "a")
    client.set(slot, f"nobodys {node.store.now() + 60_000}", px=60_000)
    assert "the token nobodys" in findings_of(node)["slot.dead-owner"].message
    assert "key.no-ttl" not in findings_of(node)
    client.persist(slot)
    found = findings_of(node)
    assert found["key.no-ttl"].level == "error"
    run_redis_cli(node, found["key.no-ttl"].fix)
    assert findings_of(node).keys() == {"lane.paused"}
    coordinator.resume("a")
    assert findings_of(node) == {}
    assert node.order() == ["one"]


def test_a_quota_whose_queue_waits_though_nobody_uses_it_is_found_and_goes_on(
    coordinator: Coordinator, node: Puppet
) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit("a", job_id="first", uses="q")
    first = node.must_take()
    node.submit("b", job_id="j", uses="q")
    assert findings_of(node) == {}
    client = node.store._client
    client.delete(node.store.key("quota-users", "q"))
    client.hset(node.store.key("quota", "q"), "used", 0)
    found = findings_of(node)["quota.stuck"]
    assert str(found) == "error [quota.stuck] (quota q) job j waits in front of its queue, and nobody uses it"
    assert found.fix.startswith("coordinator move --to front j --why")
    coordinator.move("j", to="front")
    assert findings_of(node) == {}, "it is offered"
    node.finish(node.must_take())
    node.finish(first)


def test_a_quota_beyond_its_units_or_with_too_few_or_that_nobody_declared_is_found(
    coordinator: Coordinator, node: Puppet
) -> None:
    coordinator.quota("q", concurrency=3)
    node.submit("a", job_id="a", uses={"q": 2})
    taken = node.must_take()
    node.submit("b", job_id="b", uses={"q": 3})
    coordinator.quota("q", concurrency=1)
    found = findings_of(node)
    assert found["quota.over"].message.startswith("2 units are used, and it has 1: it was lowered, or")
    assert (found["quota.over"].level, found["quota.over"].fix) == ("warning", "coordinator quotas show q")
    assert found["quota.too-few"].message == "job b waits for 3 units, and it has 1: nothing that uses it starts"
    assert found["quota.too-few"].fix == "coordinator quota q --concurrency 3 --why …"
    coordinator.drop_quota("q")
    assert findings_of(node)["quota.undeclared"].message == (
        "nobody declared it, so nothing bounds the 2 units that are used"
    )
    node.finish(taken)
    assert node.order() == ["b"]
    node.sweep()


def test_a_job_that_is_over_and_stands_in_front_is_found_and_goes(coordinator: Coordinator, node: Puppet) -> None:
    node.store._client.zadd(node.store.key("line", "a b"), {"ghost": 0})
    node.store._client.zadd(node.store.key("lanes"), {"a b": 0})
    node.submit("a b", job_id="behind")
    assert node.take() is None
    found = findings_of(node)
    assert found["line.ghost"].thing == "lane a b"
    run_redis_cli(node, found["line.ghost"].fix)
    assert "&& coordinator pause 'a b' --why … && coordinator resume 'a b' --why …" in found["line.ghost"].fix
    coordinator.pause("a b")
    coordinator.resume("a b")
    assert node.order() == ["behind"]
    assert findings_of(node) == {}


def test_a_job_counted_in_a_state_that_it_left_is_found(node: Puppet) -> None:
    node.store._client.sadd(node.store.key("state", "held"), "gone")
    found = findings_of(node)
    assert found.keys() == {"index.ghost"}, "it is not held"
    assert str(found["index.ghost"]).endswith("(job gone) it is counted as held, but has ended or has no record")
    run_redis_cli(node, found["index.ghost"].fix)
    assert findings_of(node) == {}


def test_a_node_s_slot_without_a_job_and_a_job_on_a_dead_node_are_found(node: Puppet) -> None:
    node.submit("a", job_id="one")
    taken = node.must_take()
    two = Puppet(node.store, "two")
    two.up()
    entry = f"{taken.token}-old 0 one"
    node.store._client.hset(node.store.key("work", "two"), "1.1.a", entry)
    assert findings_of(node)["slot.no-job"].thing == "node two"
    node.store._client.delete(node.store.key("work", "two"))
    node.store._client.zadd(node.store.key("alive"), {"one": 1})
    found = findings_of(node)
    assert found["job.dead-node"].message.startswith("it runs on node one, which is not alive")
    node.finish(taken)


def test_bells_that_a_node_with_room_does_not_answer_are_found(node: Puppet) -> None:
    rung, now = node.store.key("rung", "one"), node.store.now()
    node.store._client.zadd(rung, {f"{now - 60_000}-1": now, f"{now}-2": now})
    text = "1 wake-ups are not answered, the oldest for 60 s"
    assert findings_of(node)["wakes.overdue"].message == text
    node.store._client.hset(node.store.key("node", "one"), "failure", "OSError(24)")
    assert findings_of(node)["wakes.overdue"].message == f"{text}; the last runner there failed: OSError(24)"
    for number in range(4):
        node.submit(str(number))
    taken = [node.must_take() for _ in range(4)]
    assert findings_of(node) == {}, "a full node's bells wait for a slot"
    for one in taken:
        node.finish(one)
    node.store._client.delete(rung)


def test_an_old_sweep_and_a_fleet_without_a_node_are_found(node: Puppet) -> None:
    node.store._client.hset(node.store.key("swept"), "last", node.store.now() - 60_000)
    assert "no node has swept for 60 s" in findings_of(node)["sweep.old"].message
    node.nodes.leave("one", "a")
    assert findings_of(node)["node.none"].level == "error"


def test_a_node_that_was_killed_is_found_for_an_hour_and_what_became_of_its_jobs(node: Puppet) -> None:
    two = Puppet(node.store, "two")
    two.up()
    node.submit("a", job_id="j")
    taken = two.must_take()
    two.lose(taken)
    two.nodes.leave("two", "a", held=["j"])
    found = findings_of(node)["node.lost"]
    assert (found.level, found.thing) == ("warning", "node two")
    assert re.fullmatch(r"it was killed or cut off \d s ago; it held 1 job: j ready", found.message)
    node.finish(node.must_take())
    two.up(incarnation="b")
    assert findings_of(node)["node.lost"].message.endswith(" s ago, and is back; it held 1 job: j succeeded on one")


def test_a_fleet_of_which_each_node_drains_is_found(coordinator: Coordinator, node: Puppet) -> None:
    two = Puppet(node.store, "two")
    two.up()
    coordinator.drain("one")
    assert findings_of(node) == {}
    two.nodes.beat("two", "a", {"ending": "1"})
    found = findings_of(node)["node.draining"]
    assert found.message == "each living node drains, so no job starts: one, two"
    assert found.fix == "coordinator nodes undrain one --why …"
    coordinator.undrain("one")
    assert findings_of(node) == {}
    two.nodes.leave("two", "a")


def test_entries_that_no_beat_sends_are_found(coordinator: Coordinator, node: Puppet) -> None:
    client: Any = node.store._client
    coordinator.entries.put(Entry("nightly", 3600, "shop.work"))
    assert findings_of(node)["beat.none"].message == "no beat has confirmed it: its entries (1) are not sent"
    client.sadd(node.store.key("schedule-sources"), "beat_schedule")
    client.hset(node.store.key("schedule", "beat_schedule"), "seen", node.store.now())
    assert findings_of(node) == {}
    client.hset(node.store.key("schedule", "beat_schedule"), "seen", node.store.now() - 60_000)
    found = findings_of(node)["beat.none"]
    assert (found.level, found.thing, "for 60 s" in found.message) == ("warning", "source entries", True)
    coordinator.entries.remove("nightly")
    assert findings_of(node) == {}


def test_clocks_that_differ_are_found(node: Puppet) -> None:
    node.nodes.beat("one", "a", {"skew": -7.4, "host": "h1"})
    found = findings_of(node)["node.clock"]
    assert found.message == "the clock of its host h1 is 7 s behind the installation's"
    node.nodes.beat("one", "a", {"skew": 1.9})
    node.store._client.set(node.store.key("clock"), f"{node.store.now() + 90_000} 0 0 0 2000")
    assert findings_of(node)["redis.clock"].message.startswith("the server's clock is 90 s behind")


def test_nodes_of_one_name_with_different_tasks_of_a_module_are_found(node: Puppet) -> None:
    about: Any = {"app": "shop", "capacity": 4, "ordinary": 0, "load": 0}

    def other(*tasks: str, app: str = "shop", queue: str = "celery") -> dict[str, Finding]:
        node.nodes.register("two", "b", about, [f"app {app}", f"queue {queue}"], tasks)
        return findings_of(node)

    assert other("shop.work", "shop.other", "other.module") == {}
    added = other("shop.work", "shop.other", "shop.new", "coordinator.canvas")["app.mixed"]
    assert (added.level, added.thing) == ("info", "app shop")
    assert added.message.endswith("different tasks of the module shop: one lacks shop.new")
    mixed = other("shop.work", "shop.sell")["app.mixed"]
    assert mixed.level == "warning"
    assert "one lacks shop.sell; two lacks shop.other; if they are of two projects" in mixed.message
    assert other("shop.work", "shop.sell", app="stall") == {}
    assert other("shop.work", "shop.sell", queue="elsewhere") == {}


def test_mixed_versions_queues_that_nobody_serves_and_lost_labels_are_found(
    coordinator: Coordinator, node: Puppet
) -> None:
    about: Any = {"app": "shop", "capacity": 4, "ordinary": 0, "load": 0, "version": "9.9", "queue": "celery"}
    about["routes"] = json.dumps({"shop.ship": "post"})
    node.nodes.register("two", "b", about, ["app shop", "queue celery"], ["shop.ship"])
    node.submit("a", task="shop.other", queue="elsewhere")
    coordinator.needed_labels["gpu"] = lambda store: []
    found = {one.code: one for one in coordinator.doctor()}
    assert found["version.mixed"].message == "nodes run several versions: 9.9 on two; unknown on one"
    assert (found["queue.no-consumer"].thing, "shop.ship" in found["queue.no-consumer"].message) == ("queue post", True)
    assert found["queue.unserved"].thing == "queue elsewhere"
    assert found["label.lost"].level == "error"
    coordinator.cancel(coordinator.lane("a").jobs[0])
    for key in ("b", "b", "c"):
        node.submit(key, needs=["printer"])
    printer = {one.code: one for one in coordinator.doctor()}["label.unserved"]
    assert (printer.level, printer.thing, printer.fix) == (
        "error",
        "label printer",
        "COORDINATOR_LABELS=printer celery -A APP worker",
    )
    assert printer.message.startswith("3 jobs wait for a node that has it and the task shop.")


def test_many_findings_of_a_kind_are_ten_and_a_number_and_what_was_not_read_is_said(
    node: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, ids = node.store.key("state", "held"), [f"gone{number:02}" for number in range(33)]
    node.store._client.sadd(key, *ids)
    every = [one for one in examine(node.store) if one.code == "index.ghost"]
    assert len(every) == 11
    assert str(every[-1]) == "warning [index.ghost] (more) and 23 more"
    node.store._client.delete(key)
    monkeypatch.setattr(unowned, "MOST", 1)
    for number in range(3):
        node.submit(str(number))
    assert findings_of(node)["doctor.part"].message == "only the first 1 of 3 were examined"
    node.order()


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[RedisServer]:
    """As hosted services are: CONFIG is hidden."""
    with RedisServer(tmp_path / "hosted", "--rename-command", "CONFIG", "") as server:
        yield server


def codes(url: str) -> dict[str, str]:
    with Coordinator(url=url) as coordinator:
        return {one.code: one.level for one in coordinator.doctor()}


def test_what_a_server_cannot_do_is_found(hosted: RedisServer, own_redis: RedisServer, tmp_path: Path) -> None:
    assert codes(hosted.url(0)) == {"node.none": "error", "redis.hidden": "info"}
    with RedisServer(tmp_path / "less", "--rename-command", "FCALL", "") as less:
        assert codes(less.url(0)) == {"redis.functions": "error"}
    assert codes(own_redis.url(0)) == {"node.none": "error"}
    with own_redis.client() as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("appendonly", "no")
    found = codes(own_redis.url(0))
    assert found == {"node.none": "error", "redis.eviction": "error", "redis.persistence": "warning"}
    with own_redis.client() as client:
        client.config_set("maxmemory", 0)
    assert codes(own_redis.url(0)) == found | {"redis.eviction": "warning"}, "it evicts nothing yet"
    with own_redis.client() as client:
        client.execute_command("FUNCTION FLUSH")
        client.config_set("maxmemory", 1)
    assert codes(own_redis.url(0)) == {"redis.refuses": "error"}
    assert codes(f"redis://127.0.0.1:{free_port()}/0") == {"redis.away": "error"}


def test_the_exit_status_is_2_for_errors_1_for_warnings_and_0_without(
    node: Puppet, call: Call, own_redis: RedisServer
) -> None:
    warned = call("doctor")
    assert (warned.exit_code, warned.stdout.splitlines()[0].split("(")[0]) == (1, "warning [redis.persistence] ")
    fix = f"  fix: redis-cli -u {node.store.settings.url} CONFIG SET appendonly yes  # and write it into redis.conf"
    assert fix in warned.stdout.splitlines()
    away = call("doctor", COORDINATOR_URL=f"redis://127.0.0.1:{free_port()}/0")
    assert (away.exit_code, away.stdout.startswith("error [redis.away]")) == (2, True)
    url = own_redis.url(0)
    (other := Puppet(Coordinator(url=url).store)).up()
    assert call("doctor", COORDINATOR_URL=url, COORDINATOR_PREFIX="coord").stdout == "nothing found\n"
    other.store.close()


def test_an_extension_s_findings_stand_beside_the_others(coordinator: Coordinator, node: Puppet) -> None:
    own = Finding("error", "shop.till", "till 3", "it is open", "shut it")
    coordinator.extend(Extension("shop", findings=lambda: [own]))
    assert coordinator.doctor()[0] == own


def test_each_code_has_its_anchor_in_the_docs() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text()
    assert len(findings()) > 25
    assert set(re.findall(r"^### ([a-z.-]+)$", page, re.MULTILINE)) == findings()
