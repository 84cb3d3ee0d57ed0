"""Jobs on a whole fleet: order, parallel lanes, single flight, and messages that nobody can rely on."""

from itertools import pairwise
from subprocess import PIPE
from typing import Any

from tests.harness.fleet import Fleet
from tests.harness.installation import Stamp
from tests.harness.waiting import wait_until
from tests.harness.warm import at_once, start

IMPORTS = "from coordinator import Coordinator"
SKIP_AT_ONCE = """
client = Coordinator(url=sys.argv[1], prefix=sys.argv[2])
client.store._client.ping()
os.write(1, b"up\\n")
os.read(0, 1)
signature = {"task": "tests.harness.apps.shop.work", "args": ["won", 3]}
os.write(1, client.submit("single", signature, when_busy="skip").outcome.encode() + b"\\n")
"""


def intervals(stamps: list[Stamp]) -> dict[str, tuple[int, int]]:
    """Begin and end of each name."""
    begins = {stamp.name: stamp.at for stamp in stamps if stamp.what == "begin"}
    return {stamp.name: (begins[stamp.name], stamp.at) for stamp in stamps if stamp.what == "end"}


def overlap(spans: Any) -> bool:
    return any(following[0] < before[1] for before, following in pairwise(sorted(spans)))


def wait_all(fleet: Fleet, job_ids: list[str], timeout: float = 60) -> None:
    for job_id in job_ids:
        assert fleet.coordinator.wait(job_id, timeout).state == "succeeded"


def test_fifty_lanes_run_beside_each_other_and_each_in_order(fleet: Fleet) -> None:
    fleet.worker("one", 4, pool="threads")
    fleet.worker("two", 4, pool="threads")
    work = fleet.shop.work
    jobs = [(f"key/{i % 50}", work.s(f"{i % 50:02}.{i // 50}", 0.05)) for i in range(200)]
    wait_all(fleet, [one.id for one in fleet.coordinator.submit_many(jobs)])
    spans = intervals(fleet.stamps())
    for lane in range(50):
        mine = [spans[f"{lane:02}.{i}"] for i in range(4)]
        assert mine == sorted(mine)
        assert not overlap(mine)
    assert overlap(spans.values())
    busiest = max(sum(begin <= at < end for begin, end in spans.values()) for at, _ in spans.values())
    assert busiest > 4, "more than one node holds"


def test_of_twenty_processes_that_submit_at_once_with_skip_one_is_accepted(fleet: Fleet) -> None:
    fleet.worker()
    argv = ["-c", at_once(20, IMPORTS, SKIP_AT_ONCE), fleet.server.url(0), fleet.prefix]
    with start(argv, stdin=PIPE, stdout=PIPE) as processes:
        assert processes.stdout
        assert [processes.stdout.readline() for _ in range(20)] == ["up\n"] * 20
        outcomes, _ = processes.communicate(timeout=30)  # closes what they all wait for
    assert sorted(outcomes.split()) == ["skipped"] * 19 + ["started"]
    wait_until(lambda: fleet.stamps("won", "end"), 20)
    assert len(fleet.stamps("won", "begin")) == 1


def test_thirty_deferred_submits_while_busy_make_exactly_one_more_run(fleet: Fleet) -> None:
    fleet.worker()
    submit, shop = fleet.coordinator.submit, fleet.shop
    submit("sync", shop.work.s("busy", 2))
    wait_until(lambda: fleet.stamps("busy"), 20)
    found = [submit("sync", shop.work.s("more"), when_busy="defer") for _ in range(30)]
    wait_all(fleet, [one.id for one in found])
    assert [stamp.name for stamp in fleet.stamps(what="end")] == ["busy", "more"]
    assert [one.outcome for one in found] == ["queued"] + ["coalesced"] * 29


def test_requests_for_parts_and_for_everything_while_busy_are_one_run_that_does_all(fleet: Fleet) -> None:
    fleet.worker()
    submit, shop = fleet.coordinator.submit, fleet.shop
    submit("sync", shop.work.s("busy", 2))
    submit("parts", shop.work.s("busy too", 2))
    wait_until(lambda: len(fleet.stamps(what="begin")) == 2, 20)

    def ask(key: str, *pids: str) -> str:
        return submit(key, shop.unite.s(key), when_busy="defer", merge_args={"pids": pids or None}).id

    asked = [ask("sync", "P1"), ask("sync", "P2"), ask("sync"), ask("parts", "P2"), ask("parts", "P1")]
    wait_all(fleet, asked)
    runs = sorted(stamp.name for stamp in fleet.stamps(what="begin") if not stamp.name.startswith("busy"))
    assert runs in (["parts:P1,P2", "sync:*"], ["parts:P2,P1", "sync:*"])


def test_every_doorbell_may_be_lost(fleet: Fleet) -> None:
    fleet.configure(sweep=0.2)
    worker = fleet.worker()
    store, node = fleet.coordinator.store, fleet.coordinator.store.key("node", worker.name)
    there = store.read("HGET", node, "bell_queue")
    database, home, _ = there.decode().split(" ", 2)
    store.read("HSET", node, "bell_queue", f"{database} {home} {fleet.prefix}.nowhere")
    jobs = [fleet.coordinator.submit(f"k{i % 5}", fleet.shop.work.s(f"{i}")).id for i in range(20)]
    with fleet.server.client(int(database)) as broker:
        assert broker.delete(f"{fleet.prefix}.nowhere") == 1
    assert not fleet.stamps()
    store.read("HSET", node, "bell_queue", there)
    wait_all(fleet, jobs)
    assert len(fleet.stamps(what="begin")) == 20


def test_every_doorbell_may_come_twice(fleet: Fleet) -> None:
    worker = fleet.worker("one", 4, pool="threads")
    coordinator, jobs = fleet.coordinator, []
    for i in range(50):
        jobs.append(coordinator.submit(f"k{i % 5}", fleet.shop.work.s(f"{i}", 0.01)).id)
        for bell in coordinator.store.read("ZRANGE", coordinator.store.key("rung", worker.name), 0, -1):
            coordinator._doorbells.ring(worker.name, bell.decode())
    wait_all(fleet, jobs)
    assert sorted(int(stamp.name) for stamp in fleet.stamps(what="begin")) == list(range(50))


def test_jobs_submitted_while_no_node_lives_run_once_one_starts(fleet: Fleet) -> None:
    jobs = [fleet.coordinator.submit(f"k{i % 3}", fleet.shop.work.s(f"{i}")).id for i in range(9)]
    assert {fleet.coordinator.job(job_id).state for job_id in jobs} == {"ready", "waiting"}
    fleet.worker()
    wait_all(fleet, jobs)
    for lane in range(3):
        assert [int(s.name) for s in fleet.stamps(what="begin") if int(s.name) % 3 == lane] == [
            lane,
            lane + 3,
            lane + 6,
        ]


def test_a_node_that_joins_a_busy_fleet_takes_from_what_is_ready_at_once(fleet: Fleet) -> None:
    depot = fleet.depot
    fleet.worker("one", 2, app="depot")
    for name in ("long", "gate"):
        depot.coordinator.submit(name, depot.held.s(name))
    fleet.begun("long", "gate")
    jobs = [(f"k{i % 200}", depot.work.s(f"{i % 200}.{i // 200}", 0.25)) for i in range(220)]
    found = depot.coordinator.submit_many(jobs)
    two = fleet.worker("two", 2, app="depot")
    seconds, micro = fleet.coordinator.store._client.time()
    joined = seconds * 1_000_000 + micro
    fleet.go("gate")
    wait_all(fleet, [one.id for one in found])
    spans = intervals(fleet.stamps())
    assert "long" not in spans, "all was done beside the long job"
    for i in range(20):
        assert spans[f"{i}.0"][1] <= spans[f"{i}.1"][0]
    nodes = [fleet.coordinator.job(submission.id).node for submission in found]
    left = [(max(begin, joined), end) for begin, end in spans.values() if end > joined]
    assert nodes.count(two.name) > len(found) / 2
    ideal = sum(end - begin for begin, end in left) / 3
    taken = max(end for _, end in left) - joined
    assert taken < 1.5 * ideal, (taken, ideal)
    fleet.go("long")
    wait_until(lambda: not fleet.coordinator.lane("long").length, 10)


def test_a_flood_of_lanes_delays_an_ordinary_task_by_two_slices_at_most(fleet: Fleet) -> None:
    fleet.configure(slice=1)
    fleet.worker(concurrency=1)
    work = fleet.shop.work
    found = fleet.coordinator.submit_many([(f"k{i}", work.s(f"{i}", 0.02)) for i in range(400)])
    wait_until(lambda: len(fleet.stamps()) > 20, 20)
    waits = []
    for _ in range(3):
        before = len(fleet.stamps(what="end"))
        fleet.shop.add.delay(1, 2).get(timeout=20)
        waits.append(len(fleet.stamps(what="end")) - before)
    assert fleet.coordinator.job(found[-1].id).state == "ready", "the flood lasted as long"
    assert max(waits) <= 2 * 50 + 10, "jobs of 20 ms that two slices of 1 s hold"
    for one in found:
        fleet.coordinator.cancel(one.id)


def test_a_job_that_no_runner_can_read_ends_as_failed_and_hinders_nobody(fleet: Fleet) -> None:
    fleet.configure(sweep=0.1)
    submit, store = fleet.coordinator.submit, fleet.coordinator.store
    poison = submit("a", fleet.shop.add.s(1, 2), max_losses=1)
    behind = submit("a", fleet.shop.add.s(2, 2))
    record = store.key("job", poison.id)
    store._client.hset(record, "spec", '{"args": [{"__type__": "of another version", "__value__": 1}]}')
    worker = fleet.worker(concurrency=1)
    assert fleet.coordinator.wait(behind.id, 20).result == 4
    assert store._client.hmget(record, "state", "losses") == [b"failed", b"2"]
    wait_until(lambda: "could not send the end of job " + poison.id in worker.log.read_text(), 20, fleet.logs)
    told = submit("b", fleet.shop.work.s("cancelled", 60))
    wait_until(lambda: fleet.stamps("cancelled"), 20)
    fleet.coordinator.cancel(told.id)
    wait_until(lambda: fleet.shop.app.AsyncResult(told.id).state == "REVOKED", 20, fleet.logs)
