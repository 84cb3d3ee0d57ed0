"""A success and its result are one step where the result backend is a database of the coordinator's Redis."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery

from coordinator.jobs.record import Job
from coordinator.runner.attempt import Outcome
from coordinator.runner.claim import Claim, claim_of
from coordinator.runner.results import JobEnd, send
from coordinator.runner.results_in_step import ResultsInStep
from coordinator.store.client import Store
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer

pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex")  # by Celery itself
NOWHERE = 9999  # a database that no server has


def home(node: Puppet) -> int:
    return int(node.store._client.get_connection_kwargs().get("db") or 0)


def owed(node: Puppet) -> list[bytes]:
    found: Any = node.store._client.zrange(node.store.key("unsent", "shop"), 0, -1)
    return list(found)


@pytest.fixture
def results(redis_server: RedisServer, prefix: str) -> Iterator[Any]:
    """Another database of the same server, and a key in it."""
    with redis.Redis.from_url(redis_server.url(9)) as client:
        yield client
        client.delete(f"{prefix}.result")


def test_the_step_stores_the_result_and_owes_nothing(node: Puppet, results: Any, prefix: str) -> None:
    key = f"{prefix}.result"
    node.submit("a", tell=True, job_id="j")
    with results.pubsub() as heard:
        heard.subscribe(key)
        assert heard.get_message(timeout=5)["type"] == "subscribe"
        done = node.finish(node.must_take(), result=(key, b"\x80value", 3600, 9, home(node)))
        assert heard.get_message(timeout=5)["data"] == b"\x80value"
    assert (done.verdict, done.state) == ("stored", "succeeded")
    assert (results.get(key), 3590 < results.ttl(key) <= 3600) == (b"\x80value", True)
    assert owed(node) == []
    assert node.lanes.job("j").state == "succeeded"
    assert not node.store._client.hexists(node.store.key("job", "j"), "tell")


def test_a_result_is_kept_for_ever_where_it_does_not_expire(node: Puppet, results: Any, prefix: str) -> None:
    node.submit("a", tell=True)
    assert node.finish(node.must_take(), result=(f"{prefix}.result", "1", 0, 9, home(node))).verdict == "stored"
    assert results.ttl(f"{prefix}.result") == -1


def test_what_follows_in_the_step_is_written_to_the_database_of_the_installation(
    node: Puppet, results: Any, prefix: str
) -> None:
    node.submit("a", tell=True)
    second = node.submit("a", tell=True)
    done = node.finish(node.must_take(), next_token="next", result=(f"{prefix}.result", "1", 60, 9, home(node)))
    assert done.next
    assert done.next.id == second.id
    assert node.lanes.job(second.id).state == "running"
    assert results.keys(f"*{prefix}*") == [f"{prefix}.result".encode()]


def test_a_result_that_the_server_refuses_stays_owed(node: Puppet, prefix: str) -> None:
    node.submit("a", tell=True, job_id="j")
    done = node.finish(node.must_take(), result=(f"{prefix}.result", "1", 60, NOWHERE, home(node)))
    assert (done.verdict, done.state, owed(node)) == ("accepted", "succeeded", [b"j"])


def test_a_reply_that_was_lost_and_a_token_that_is_not_the_jobs_any_more_store_nothing(
    node: Puppet, results: Any, prefix: str
) -> None:
    result = (f"{prefix}.result", "1", 60, 9, home(node))
    node.submit("a", tell=True, job_id="j")
    first = node.must_take()
    node.lose(first)
    second = node.must_take()
    assert node.finish(first, result=result).verdict == "lost"
    assert not results.exists(result[0])
    node.submit("b", tell=True, job_id="k")
    taken = node.must_take()
    assert node.finish(taken, result=result).verdict == "stored"
    results.delete(result[0])
    assert node.finish(taken, result=result)[:2] == ("accepted", "succeeded")
    assert not results.exists(result[0])
    assert node.finish(second, result=result)[:2] == ("accepted", "succeeded")  # one that was lost owes it


def test_a_job_whose_call_another_waits_for_owes_its_result(node: Puppet, results: Any, prefix: str) -> None:
    node.submit("a", tell=True, when_busy="defer", job_id="j")
    assert node.submit("a", tell=True, when_busy="defer").outcome == "coalesced"
    done = node.finish(node.must_take(), result=(f"{prefix}.result", "1", 60, 9, home(node)))
    assert (done.verdict, owed(node), results.exists(f"{prefix}.result")) == ("accepted", [b"j"], 0)


def claimed(node: Puppet, **options: Any) -> Claim:
    node.submit("a", tell=True, args=(1,), **options)
    taken = node.must_take()
    given = node.store.step("runner_take", node.name, node.incarnation, taken.runner, "again", taken.token, node.ttl)
    return claim_of(given, taken.token)


def work(value: object) -> object:
    return value


@pytest.fixture(params=[False, True], ids=["usual", "extended"])
def app(request: pytest.FixtureRequest, redis_server: RedisServer, prefix: str) -> Iterator[Celery]:
    app = Celery("shop", broker="memory://", backend=redis_server.url(9), set_as_current=False)
    app.conf.update(result_extended=request.param, result_backend_transport_options={"global_keyprefix": f"{prefix}."})
    app.task(name="shop.work", shared=False)(work)
    yield app
    app.backend.client.close()
    app.close()


def meta(app: Celery, value: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(value)
    assert found.pop("date_done")
    return found


def test_it_is_what_celery_stores(app: Celery, store: Store, node: Puppet) -> None:
    claim = claimed(node)
    key, value, seconds, database, own = ResultsInStep(app, store, node.name).of(
        claim, Outcome("succeeded", '{"a": [1]}', {"a": [1]})
    )
    job = Job(
        id=claim.id, keys=("a",), state="succeeded", task="shop.work", args=(1,), kwargs={}, attempt=1, losses=0,
        node=node.name, fence=1, submitted=None, taken=None, started=None, ended=None, result={"a": [1]}, error=None,
        progress=None,
    )  # fmt: skip
    send(app, JobEnd(job, claim.spec, None))
    stored: Any = app.backend.client.get(app.backend.get_key_for_task(claim.id))
    assert (key, seconds) == (app.backend.get_key_for_task(claim.id), app.backend.client.ttl(key))
    assert (database, own) == (9, home(node))
    assert meta(app, value) == meta(app, stored)


@pytest.mark.parametrize("backend", ["another name", "another user", "another kind", "none"])
def test_a_backend_elsewhere_is_told_by_the_outbox(
    backend: str, redis_server: RedisServer, store: Store, node: Puppet
) -> None:
    url = {
        "another name": redis_server.url(9).replace("127.0.0.1", "localhost"),
        "another user": redis_server.url(9).replace("redis://", "redis://default:@"),
        "another kind": "cache+memory://",
        "none": None,
    }[backend]
    with Celery("shop", broker="memory://", backend=url, set_as_current=False) as app:
        assert ResultsInStep(app, store, node.name).of(claimed(node), Outcome("succeeded", "1", 1)) == ()


@pytest.mark.parametrize(
    "options", [{"options": {"link": [{"task": "shop.work"}]}}, {"options": {"ignore_result": True}}], ids=str
)
def test_a_job_with_more_or_less_to_do_goes_another_way(
    options: dict[str, Any], app: Celery, store: Store, node: Puppet
) -> None:
    assert ResultsInStep(app, store, node.name).of(claimed(node, **options), Outcome("succeeded", "1", 1)) == ()


def test_a_result_that_cannot_be_encoded_ends_no_runner(app: Celery, store: Store, node: Puppet) -> None:
    assert ResultsInStep(app, store, node.name).of(claimed(node), Outcome("succeeded", "1", object())) == ()
