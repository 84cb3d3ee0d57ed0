"""A record that cannot be read is shown as damaged, and stops nobody."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from coordinator import Coordinator, Entry, StoreRefused, UnknownJob
from coordinator.core.fleet.status_file import StatusFile, anonymous_file
from coordinator.core.jobs.backoff import delay_of_job
from coordinator.core.jobs.current import CurrentJob
from coordinator.core.jobs.record import fields
from coordinator.core.maintenance.parked import Parked
from coordinator.core.maintenance.results import Results
from coordinator.core.supervisor.runner_watch import RunnerWatch
from coordinator.ops.cli.format import as_json
from coordinator.ops.diagnosis.status import status_of
from coordinator.ops.metrics.collector import Collector
from tests.harness.command import Call, loaded
from tests.harness.hand_node import Puppet

JUNK = b"\xff{"


@pytest.fixture
def shop(node: Puppet) -> Iterator[Puppet]:
    """One job in each state that a record keeps long, and one that waits behind each."""
    node.submit("held", job_id="held", on_failure="hold")
    node.finish(node.must_take(), "failed")
    node.submit("parked", job_id="parked")
    node.park(node.must_take(), "other", one=True)
    node.submit("retrying", job_id="retrying", max_attempts=2)
    node.finish(node.must_take(), "raised", delay=1)
    node.submit("over", job_id="over", tell=True)
    node.finish(node.must_take(), "failed")
    node.submit("succeeded", job_id="succeeded")
    node.finish(node.must_take())
    node.submit("running", job_id="running", rollback={"task": "shop.other"})
    taken = node.must_take()
    CurrentJob("running", ("running",), taken.token, 1, 1, node.lanes).progress(1, 2)
    for key in ("held", "parked", "retrying", "running"):
        node.submit(key, job_id=f"behind-{key}")
    yield node
    client: Any = node.store._client
    client.unlink(*client.scan_iter(node.store.prefix + "*", 1000))


def test_a_progress_that_is_no_whole_number_is_refused(node: Puppet) -> None:
    node.submit("a", job_id="j")
    taken = node.must_take()
    with pytest.raises(TypeError):
        CurrentJob("j", ("a",), taken.token, 1, 1, node.lanes).progress(0.5, 1.0)  # type: ignore[arg-type]
    assert node.lanes.job("j").progress is None
    node.finish(taken)


def test_the_commands_show_a_damaged_record_and_all_others(node: Puppet, call: Call, coordinator: Coordinator) -> None:
    node.submit("a", job_id="j")
    node.submit("a", job_id="k")
    node.store._client.hset(node.store.key("job", "j"), "progress", "0.5/1.0")
    assert {job["id"]: job["damaged"] for job in loaded(call("jobs", "--json"))["jobs"]} == {"j": ["progress"], "k": []}
    assert "ready (damaged)" in call("jobs").stdout
    assert "progress" in call("job", "j").stdout.partition("damaged")[2].splitlines()[0]
    assert coordinator.why("k").causes[-1].text == "j has a damaged record: progress"
    assert node.order() == ["j", "k"]


def test_a_damaged_field_whichever_it_is_stops_nobody(shop: Puppet, coordinator: Coordinator) -> None:
    """In all records in front of a lane at once, then in all behind them: one of each pair is whole."""
    client: Any = shop.store._client
    app = Celery("shop", backend="cache+memory://", set_as_current=False)
    duties = (Parked(shop.lanes, app), Results(shop.store, shop.lanes, app))
    names = [job.id for job in coordinator.jobs().jobs]
    behind = [job_id for job_id in names if job_id.startswith("behind-")]
    for damaged in (behind, sorted({*names} - {*behind})):
        records = {shop.store.key("job", job_id): client.hgetall(shop.store.key("job", job_id)) for job_id in damaged}
        for name in sorted({name for record in records.values() for name in record}):
            for key in (key for key, record in records.items() if name in record):
                client.hset(key, name, JUNK)
            client.zadd(shop.store.key("parked", "shop"), {"parked": 1})
            client.zadd(shop.store.key("unsent", "shop"), {"over": 1})
            try:
                assert {job.id for job in coordinator.jobs().jobs} == set(names)
                coordinator.jobs(key="held", state="held", since="1h", node="one", error="x", text="x")
                assert as_json([shop.lanes.job(one) for one in names])
                for one in names:
                    assert coordinator.why(one)
                assert status_of(shop.store).jobs
                assert coordinator.lanes()
                for job_id in damaged:
                    delay_of_job(shop.store, job_id)
                for duty in duties:
                    duty.step()
            except Exception as error:
                error.add_note(f"{damaged}: {name}")
                raise
            for key in (key for key, record in records.items() if name in record):
                client.hset(key, name, records[key][name])


def looks(node: Puppet, coordinator: Coordinator, status_file: StatusFile) -> None:
    """What people and supervisors read of all that is no job."""
    assert [one.name for one in coordinator.nodes()] == ["one"]
    assert as_json(coordinator.nodes())
    assert {lane.key for lane in coordinator.lanes()} > {"paused"}
    assert as_json([coordinator.lane("paused"), coordinator.contended(), coordinator.locks()])
    assert status_of(node.store).nodes
    assert coordinator.doctor() is not None
    assert coordinator.why(node="one")
    assert coordinator.why(key="paused")
    assert coordinator._quotas.read("q")
    assert coordinator._quotas.page("", 10, "")
    assert coordinator._quotas.read("many/*")
    assert coordinator.why("behind-running")
    assert [entry.name for entry in coordinator.entries.all()] == ["entry"]
    assert coordinator.entries.history("entry") is not None
    assert [as_json(found) for found in (coordinator.grabs(), coordinator.grabs("event"))]
    assert [sorter.name for sorter in coordinator.sorters()] == ["sorter"]
    assert coordinator.counts().keys() > {"created", "succeeded"}
    assert coordinator.rates() is not None
    assert len(list(Collector(coordinator).collect())) > 10
    RunnerWatch(node.lanes, "one", "", status_file).entries()


def steps(node: Puppet, coordinator: Coordinator, word: str) -> None:
    """What goes on meanwhile: every step that reads such a hash in Redis."""
    assert node.nodes.beat("one", node.incarnation, {"load": 0.1}, {"shop.work": (5, 0.2)})
    assert node.store.step("sweep", 0, 2000, "")[0] == 1
    job_id = node.submit("free", job_id=f"free {word}").id
    node.submit("using", job_id=f"using {word}", uses=["q", "many/a"])
    while (taken := node.must_take()).id != job_id:
        node.finish(taken)
    assert node.renew(taken) == [True]
    assert node.finish(taken).state == "succeeded"
    coordinator.grab("event", word, "me")
    coordinator.sorter("sorter", 60).add(word, "k", {"task": "shop.work"})
    coordinator.entries.pause("entry")
    coordinator.entries.resume("entry")
    coordinator.pause("paused", why="again")
    coordinator.quota("q", concurrency=5, rate="9/s", why="again")
    coordinator.cool_down("q", 0.001, why="again")


def test_a_damaged_field_of_any_other_hash_stops_nobody(shop: Puppet, coordinator: Coordinator, tmp_path: Path) -> None:
    client: Any = shop.store._client
    status_file = StatusFile(tmp_path, anonymous_file(tmp_path))
    coordinator.quota("q", concurrency=4, rate="9/s", why="w")
    coordinator.quota("many/*", concurrency=5, why="w")
    coordinator.pause("paused", why="w")
    coordinator.entries.put(Entry("entry", 3600, "shop.work", key="entry"))
    coordinator.entries.skip_next("entry")
    coordinator.drain("two", why="w")
    steps(shop, coordinator, "before")
    looks(shop, coordinator, status_file)
    for number, hash_ in enumerate(sorted(shop.names()), 1):
        if client.type(hash_) != b"hash" or ":job:" in hash_:
            continue
        for name, value in client.hgetall(hash_).items():
            if name == b"incarnation":
                continue  # of another worker: this one registers anew
            try:
                client.hset(hash_, name, JUNK)
                looks(shop, coordinator, status_file)
                steps(shop, coordinator, f"{number} {name!r}")
            except Exception as error:
                error.add_note(f"{hash_}: {name!r}")
                raise
            client.hset(hash_, name, value)


@pytest.mark.parametrize("name", ["keys", "limits", "class"])
def test_a_sweep_and_a_renewal_go_on_behind_a_damaged_record(shop: Puppet, name: str) -> None:
    """Its retry, its lease and its lifetime are all over, and so are those of another."""
    client: Any = shop.store._client
    shop.submit("last", job_id="last", max_attempts=2)
    while (taken := shop.must_take()).id != "last":
        shop.finish(taken)
    (token,) = fields(shop.store, "running", "token")
    running = taken._replace(id="running", token=token)
    for job_id in ("retrying", "running"):
        client.hdel(shop.store.key("job", job_id), name)
    assert shop.renew(running, taken)[1]
    shop.finish(taken, "raised", delay=10**6)
    client.zadd(shop.store.key("leases"), {"running": 1})
    client.zadd(shop.store.key("expiry"), {"parked": 1, "retrying": 0, "held": 2})
    client.zadd(shop.store.key("due"), {"retrying": 1, "last": 2})
    shop.sweep()
    again = [client.zscore(shop.store.key(kind), name) for kind, name in (("due", "retrying"), ("leases", "running"))]
    assert max(filter(None, again), default=0) <= shop.store.now() + 60_000
    assert (shop.lanes.job("last").state, shop.lanes.job("held").state) == ("ready", "expired")
    with pytest.raises(UnknownJob):
        shop.lanes.job("other")


def test_what_a_user_may_not_do_is_said_and_taken_for_no_damage(node: Puppet) -> None:
    client: Any = node.store._client
    node.submit("a", job_id="j")
    client.execute_command("ACL", "SETUSER", "default", "-sismember")
    try:
        with pytest.raises(StoreRefused, match="forbids that to this user"):
            node.take()
    finally:
        client.execute_command("ACL", "SETUSER", "default", "+@all")


@pytest.mark.parametrize("name", ["keys", "limits", "task"])
def test_the_end_of_a_job_goes_on_past_a_damaged_one_that_is_next(node: Puppet, name: str) -> None:
    """One that waits in its lane and becomes ready by this end, and one that is ready already."""
    client: Any = node.store._client
    node.submit("a", job_id="first")
    first = node.must_take()
    node.submit("a", job_id="damaged and waiting")
    node.submit("b", job_id="damaged and ready")
    node.submit("c", job_id="other")
    for job_id in ("damaged and waiting", "damaged and ready"):
        client.hdel(node.store.key("job", job_id), name)
    verdict, state, given = node.finish(first, next_token="next")
    assert (verdict, state, given and given.id) == ("accepted", "succeeded", "other")
    assert given
    assert node.finish(given).state == "succeeded"
