"""Jobs on a node: single flight, requests on the broker, messages that nobody can rely on, results, commands."""

import json
from collections.abc import Iterator
from subprocess import PIPE

import psutil
import pytest

from proof.harms import RUBBISH as RUBBISH_WAKES
from tests.coordinator.inbox.senders import RUBBISH, SENDERS, broker, key, letters, plain, push
from tests.fleet.results import results_of
from tests.fleet.test_inbox import processes, runs
from tests.harness.command import Call, listed, loaded
from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.stopping import stop
from tests.harness.waiting import wait_for_count, wait_until
from tests.harness.warm import at_once, start

NODE = Node("shop", 2, settings={"sweep": 0.2, "heartbeat": 0.5, "lock_ttl": 5, "node_ttl": 4})

IMPORTS = "from coordinator import Coordinator"
SKIP_AT_ONCE = """
client = Coordinator(url=sys.argv[1], prefix=sys.argv[2])
client.store._client.ping()
os.write(1, b"up\\n")
os.read(0, 1)
signature = {"task": "tests.harness.apps.shop.work", "args": ["won", 3]}
os.write(1, client.submit("single", signature, when_busy="skip").outcome.encode() + b"\\n")
"""


def wait_all(fleet: Fleet, job_ids: list[str], timeout: float = 60) -> None:
    for job_id in job_ids:
        assert fleet.coordinator.wait(job_id, timeout).state == "succeeded"


@pytest.fixture
def call(fleet: Fleet, call: Call) -> Call:
    """The command, on the installation of the node."""
    return lambda *args: call(*args, COORDINATOR_PREFIX=fleet.prefix)


@pytest.fixture
def inbox(fleet: Fleet) -> Iterator[None]:
    """At the end nothing is left of what was put aside."""
    yield
    with broker(fleet) as client:
        client.delete(*client.scan_iter(f"{key(fleet)}*", 1000))


def test_of_twenty_processes_that_submit_at_once_with_skip_one_is_accepted(fleet: Fleet) -> None:
    argv = ["-c", at_once(20, IMPORTS, SKIP_AT_ONCE), fleet.server.url(0), fleet.prefix]
    with start(argv, stdin=PIPE, stdout=PIPE) as processes:
        assert processes.stdout
        assert [processes.stdout.readline() for _ in range(20)] == ["up\n"] * 20
        outcomes, _ = processes.communicate(timeout=60)  # closes what they all wait for
    assert sorted(outcomes.split()) == ["skipped"] * 19 + ["started"]
    wait_until(lambda: fleet.stamps("won", "end"))
    assert len(fleet.stamps("won", "begin")) == 1


def test_thirty_deferred_submits_while_busy_make_exactly_one_more_run(fleet: Fleet) -> None:
    submit, shop = fleet.coordinator.submit, fleet.shop
    submit("sync", shop.held.s("busy"))
    wait_until(lambda: fleet.stamps("busy"))
    found = [submit("sync", shop.work.s("more"), when_busy="defer") for _ in range(30)]
    fleet.go("busy")
    wait_all(fleet, [one.id for one in found])
    assert [stamp.name for stamp in fleet.stamps(what="end")] == ["busy", "more"]
    assert [one.outcome for one in found] == ["queued"] + ["coalesced"] * 29


def test_requests_for_parts_and_for_everything_while_busy_are_one_run_that_does_all(fleet: Fleet) -> None:
    submit, collect, shop = fleet.coordinator.submit, fleet.coordinator.collect, fleet.shop
    submit("sync", shop.held.s("busy"))
    submit("parts", shop.held.s("busy too"))
    wait_until(lambda: len(fleet.stamps(what="begin")) == 2)

    def ask(key: str, *pids: str) -> str:
        return collect(key, shop.unite.s(key, pids=pids or None), how="merge").id

    asked = [ask("sync", "P1"), ask("sync", "P2"), ask("sync"), ask("parts", "P2"), ask("parts", "P1")]
    for name in ("busy", "busy too"):
        fleet.go(name)
    wait_all(fleet, asked)
    runs = sorted(stamp.name for stamp in fleet.stamps(what="begin") if not stamp.name.startswith("busy"))
    assert runs in (["parts:P1,P2", "sync:*"], ["parts:P2,P1", "sync:*"])


def test_every_wake_up_may_be_lost(fleet: Fleet) -> None:
    (worker,) = fleet.workers
    store, supervisor = fleet.coordinator.store, worker.supervisor()
    under_way = [store.key(kind, worker.name) for kind in ("rung", "work")]
    wait_until(lambda: not store.read("EXISTS", *under_way))  # no runner comes for an earlier test's wake-up
    stop(supervisor)
    jobs = [fleet.coordinator.submit(f"k{i % 5}", fleet.shop.work.s(f"{i}")).id for i in range(20)]
    wait_until(
        lambda: store.read("DEL", fleet.wakes_of(worker.name))
    )  # Redis has handed the first one to the supervisor
    assert not fleet.stamps()
    supervisor.resume()
    wait_all(fleet, jobs)
    assert len(fleet.stamps(what="begin")) == 20


def test_rubbish_among_the_wake_ups_harms_nobody(fleet: Fleet) -> None:
    (worker,) = fleet.workers
    lives = processes(worker)
    fleet.coordinator.store.read("RPUSH", fleet.wakes_of(worker.name), *RUBBISH_WAKES)
    wait_all(fleet, [fleet.coordinator.submit("k", fleet.shop.work.s(f"{i}")).id for i in range(3)])
    assert (processes(worker), "cannot start a runner" in worker.log.read_text()) == (lives, True)


def test_a_job_that_no_runner_can_read_ends_as_failed_and_hinders_nobody(fleet: Fleet) -> None:
    submit, store = fleet.coordinator.submit, fleet.coordinator.store
    fleet.coordinator.pause("a")
    poison = submit("a", fleet.shop.add.s(1, 2), max_losses=1)
    behind = submit("a", fleet.shop.add.s(2, 2))
    record = store.key("job", poison.id)
    store._client.hset(record, "spec", '{"args": [{"__type__": "of another version", "__value__": 1}]}')
    fleet.coordinator.resume("a")
    assert fleet.coordinator.wait(behind.id, 60).result == 4
    assert store._client.hmget(record, "state", "losses") == [b"failed", b"2"]
    wait_until(lambda: "cannot send result and links of job " + poison.id in fleet.logs(), what=fleet.logs)
    told = submit("b", fleet.shop.work.s("cancelled", 60))
    wait_until(lambda: fleet.stamps("cancelled"))
    fleet.coordinator.cancel(told.id)
    wait_until(lambda: fleet.shop.app.AsyncResult(told.id).state == "REVOKED", what=fleet.logs)


def test_a_flood_of_rubbish_delays_neither_jobs_nor_requests_for_long(fleet: Fleet, inbox: None) -> None:
    (worker,) = fleet.workers
    before = processes(worker)
    with broker(fleet) as client:
        client.lpush(key(fleet), *["rubbish"] * 5_000)
    plain(fleet, {"name": "behind", "id": "behind"})
    job = fleet.coordinator.submit("beside", fleet.shop.work.s("beside"))
    beside = fleet.coordinator.wait(job.id, 60)
    assert (beside.state, beside.ended is not None) == ("succeeded", True)
    with broker(fleet) as client:
        wait_for_count(lambda: -client.llen(key(fleet)), 0, 60)
    wait_until(lambda: "behind:*" in runs(fleet))
    assert beside.ended < fleet.coordinator.job("behind").submitted, "much rubbish waited still"
    assert letters(fleet) == 1000, "the last ones are kept"
    assert processes(worker) == before
    assert 10 <= fleet.logs().count("refused") < 100, "a node tells of ten in a minute"


def test_no_message_on_the_queue_is_noticed_by_the_worker_or_its_other_queues(fleet: Fleet, inbox: None) -> None:
    (worker,) = fleet.workers
    before = processes(worker)
    ordinary = []
    for number, (message, _) in enumerate(RUBBISH.values()):
        push(fleet, message)
        ordinary.append(fleet.shop.add.delay(number, 1))
        fleet.coordinator.submit("orders", fleet.shop.work.s(f"order {number}"))
    for number, send in enumerate(SENDERS):
        send(fleet, {"name": f"good {number}", "id": f"id {number}"})
    assert [result.get(timeout=60) for result in ordinary] == [number + 1 for number in range(len(RUBBISH))]
    wait_until(lambda: letters(fleet) == len(RUBBISH))
    for number in range(len(SENDERS)):
        wait_until(lambda number=number: f"good {number}:*" in runs(fleet))  # type: ignore[misc]
        assert fleet.coordinator.wait(f"id {number}", 60).state == "succeeded"
    wait_for_count(lambda: len(fleet.stamps(what="end")), len(RUBBISH))
    assert processes(worker) == before
    assert "Traceback" not in fleet.logs()


def test_a_burst_has_all_its_results_and_who_listens_hears_of_each(fleet: Fleet) -> None:
    told = fleet.coordinator.submit_many((f"k{number % 50}", fleet.shop.add.s(1, number)) for number in range(500))
    heard: list[str] = []
    found = results_of(fleet, told).join_native(timeout=60, callback=lambda task_id, value: heard.append(task_id))
    assert found is None
    assert sorted(heard) == sorted(one.id for one in told)
    wait_until(lambda: not fleet.coordinator.store.read("EXISTS", fleet.coordinator.store.key("unsent", "shop")))


def test_submit_with_wait_shows_the_result_and_its_exit_status_tells(fleet: Fleet, call: Call) -> None:
    done = loaded(call("submit", "k", "tests.harness.apps.shop.add", "--args", "[1, 2]", "--wait", "--json"))
    assert (done["state"], done["result"]) == ("succeeded", 3)
    failed = call("submit", "k", "tests.harness.apps.shop.fail", "--wait")
    assert (failed.exit_code, "ValueError: no" in failed.stdout) == (1, True)


def test_nodes_and_finished_jobs_show_on_a_real_fleet(fleet: Fleet, call: Call) -> None:
    job_id = fleet.coordinator.submit("order/1", fleet.shop.add.s(1, 2)).id
    assert loaded(call("wait", job_id, "--json"))["result"] == 3
    (node,) = listed(call("nodes", "--json"))
    assert (node["name"], node["capacity"]) == ("one@test", 2)
    assert "one@test" in call("nodes").stdout
    assert "1 alive" in call("status").stdout


def test_what_a_killed_node_had_in_hand_is_done_by_another_one(fleet: Fleet) -> None:
    heir, killed = fleet.workers[0], fleet.worker("killed")
    its_own, maintenance = heir.maintenance(), killed.maintenance()
    stop(its_own)
    sent: list[str] = []

    def caught_with_something_received() -> bool:
        sent.extend(f"r{len(sent) + number}" for number in range(100))
        with broker(fleet) as client:
            client.lpush(key(fleet), *[json.dumps({"name": "a", "id": name}) for name in sent[-100:]])
            wait_until(lambda: client.llen(key(fleet)) < 100)
            stop(maintenance)
            if client.exists(key(fleet, ".taken")):
                return True
            maintenance.resume()
            return False

    wait_until(caught_with_something_received)
    everything = [*killed.children(), killed.supervisor(), maintenance, psutil.Process(killed.pid)]
    for process in everything:
        process.kill()
    killed.process.wait()
    its_own.resume()
    with broker(fleet) as client:
        wait_until(lambda: not client.exists(key(fleet), key(fleet, ".taken")))
    for name in sent:
        assert fleet.coordinator.wait(name, 60).state == "succeeded"
