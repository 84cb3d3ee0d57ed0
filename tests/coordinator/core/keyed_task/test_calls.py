"""The parts of a call that reach its job, as they would reach a message; and calls that make none."""

from typing import Any

import pytest
from celery import Celery, signals
from celery.app.task import Task
from celery.result import AsyncResult
from kombu import Connection, Exchange, Producer, Queue
from kombu.exceptions import OperationalError

from coordinator import Coordinator, InvalidJob, Locked, SettingsError, ShuttingDown, StoreUnavailable
from coordinator.core.jobs.spec import CHILD
from tests.harness.hand_node import Puppet, playing
from tests.harness.installation import Installation
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import within

pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex")  # by Celery itself


@pytest.fixture(autouse=True)
def node(keyed: Any) -> Puppet:
    return playing(keyed)


def nothing() -> None:
    """Do nothing."""


def test_the_job_carries_what_its_message_would_have_carried(keyed: Any) -> None:
    place = {"group_id": "g", "group_index": 0, "root_id": "r", "parent_id": "p", "reply_to": "me", "retries": 2}
    stamps = {"stamped_headers": ["colour"], "colour": ["red"], "replaced_task_nesting": 1}
    given = {"shadow": "other", "ignore_result": True, "soft_time_limit": 5, "time_limit": 9}
    call = keyed.add.apply_async((1, 2), headers={"mine": 1, CHILD: "a-job"}, **place, **stamps, **given)
    spec = keyed.coordinator._core.spec(call.id)
    message = spec["message"]
    group = {"group": "g", "group_index": 0, "root_id": "r", "parent_id": "p", "reply_to": "me", "retries": 2}
    assert {name: message.get(name) for name in group} == group
    assert (message["stamps"], message["stamped_headers"]) == ({"colour": ["red"]}, ["colour"])
    assert message["replaced_task_nesting"] == 1
    assert (message["child_of"], bool(message["origin"])) == ("a-job", True)
    assert (spec["shadow"], spec["ignore_result"], spec["soft"]) == ("other", True, 5)
    assert spec["headers"] == {"mine": 1}
    lone = keyed.coordinator._core.spec(keyed.add.apply_async((1, 2), task_id="lone").id)["message"]
    assert lone.keys() <= {"reply_to", "origin"}, "what is usual is not kept with each job"


def test_only_false_is_a_way_past_the_lane_and_a_header_says_so_too(keyed: Any) -> None:
    for wrong in ("no", 0.5, {"key": "k"}):
        with pytest.raises(SettingsError, match=r"keyed\.add: a call takes coordinate=False or no such option"):
            keyed.add.apply_async((1, 2), coordinate=wrong)
    keyed.add.apply_async((1, 2), headers={"coordinate": False, "mine": 1})
    assert keyed.coordinator.counts()["created"] == 0


def test_calls_coalesce_only_where_all_their_arguments_are_the_same(keyed: Any) -> None:
    asked: list[tuple[tuple[Any, ...], dict[str, Any]]] = [(("a",), {}), ((), {"name": "a"}), ((), {"name": "b"})]
    calls = [keyed.late.apply_async(*one, task_id=f"{number}") for number, one in enumerate([*asked, *asked])]
    told = [keyed.coordinator.job(call.id) for call in calls]
    assert [job.id for job in told] == ["0", "1", "2"] * 2
    assert [(job.args, job.kwargs) for job in told[:3]] == asked


class Recording(Producer):
    """Notes what it publishes."""

    def publish(self, body: Any, *args: Any, **options: Any) -> Any:
        self.noted = [*getattr(self, "noted", ()), (options["routing_key"], body.get("type"))]
        return super().publish(body, *args, **options)


def test_the_event_task_sent_is_published_with_the_caller_s_producer_or_one_of_the_app(keyed: Any) -> None:
    keyed.app.conf.task_send_sent_event = True
    with keyed.app.connection_for_write() as connection:
        producer = Recording(connection)
        keyed.add.apply_async((1, 2), producer=producer)
        keyed.add.apply_async((1, 2))
        keyed.add.apply_async((1, 2), connection=connection)
        keyed.app.send_task("keyed.add", (1, 2), publisher=producer)
    assert producer.noted == 2 * [("task.sent", "task-sent")]
    assert keyed.coordinator.counts()["created"] == 4
    assert keyed.app.producer_pool._dirty == set(), "each is given back"


def test_a_priority_has_the_direction_of_the_broker(keyed: Any) -> None:
    told = [keyed.coordinator.job(keyed.add.apply_async((1, 2), priority=number).id).priority for number in (9, 0)]
    assert told == [-9, 0]
    with Connection("memory://") as rabbit:
        assert keyed.coordinator.job(keyed.add.apply_async((1, 2), priority=9, connection=rabbit).id).priority == 9


def test_what_a_call_names_wins_over_the_option_and_what_its_task_names_does_not(keyed: Any) -> None:
    option = {"key": "k", "priority": 5, "time_limit": 100, "soft_time_limit": None}
    task = keyed.app.task(nothing, name="keyed.urgent", shared=False, coordinate=option, time_limit=50)

    def told(**given: Any) -> tuple[int, int]:
        job_id = keyed.coordinator.submit(None, task.s().set(**given), if_unknown="wait").id
        called = task.apply_async(**given).id
        jobs = [keyed.coordinator.job(one).priority for one in (job_id, called)]
        limit = keyed.coordinator.store._client.hget(keyed.coordinator.store.key("job", called), "limits")
        return jobs[1], int(limit.split()[2])

    assert told() == (5, 100_000)
    assert told(priority=0, time_limit=7) == (0, 7000)


def test_headers_that_a_base_class_adds_are_in_the_key_of_a_submit_and_of_a_call(keyed: Any) -> None:
    class OfTenant(Task):
        def apply_async(self, *args: Any, headers: Any = None, **options: Any) -> Any:
            return super().apply_async(*args, headers={**(headers or {}), "tenant": "ann"}, **options)

    option = {"key": "{headers[tenant]}"}
    task = keyed.app.task(nothing, name="keyed.of_tenant", shared=False, base=OfTenant, coordinate=option)
    for made in (task.delay(), keyed.coordinator.submit(None, task.s(), if_unknown="wait")):
        assert keyed.coordinator.job(made.id).key == "ann"


def test_headers_that_a_handler_puts_under_headers_reach_the_job(keyed: Any) -> None:
    def before(headers: dict[str, Any], **_: Any) -> None:
        headers["headers"] = {"trace": "t-1"}

    signals.before_task_publish.connect(before)
    try:
        call = keyed.add.delay(1, 2)
    finally:
        signals.before_task_publish.disconnect(before)
    assert keyed.coordinator._core.spec(call.id)["headers"] == {"trace": "t-1"}


def test_a_backend_that_declares_a_queue_for_each_caller_is_given_a_channel(apps: Installation, keyed: Any) -> None:
    app = Celery("keyed", broker=apps.server.url(1), backend="rpc://", set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": f"{apps.prefix}."}
    Coordinator(app, url=apps.server.url(0), prefix=apps.prefix, timeout=10)
    task = app.task(nothing, name="keyed.add", shared=False, coordinate={"key": "k"})
    assert keyed.coordinator.job(task.delay().id).key == "k"
    app.coordinator.store.close()
    app.close()


def test_a_call_that_a_lock_turned_away_calls_its_error_links_and_keeps_what_is_wanted(
    apps: Installation, keyed: Any
) -> None:
    with keyed.coordinator.lock("lane/usual"):
        quiet = keyed.once.apply_async(("quiet",), ignore_result=True)
        told = keyed.once.apply_async(("told",), link_error=keyed.note.si("error"))
    assert apps.stamps("note/error"), "Celery calls such a link at once"
    assert (quiet.state, told.state) == ("PENDING", "FAILURE")
    with pytest.raises(Locked, match="lane/usual"):
        told.get(timeout=60)


def test_a_coordinator_that_stopped_submitting_refuses_calls(keyed: Any) -> None:
    keyed.coordinator.stop_submitting()
    with pytest.raises(ShuttingDown):
        keyed.add.delay(1, 2)


def test_a_task_that_another_of_its_name_replaces_has_the_option_of_that(keyed: Any) -> None:
    def ship(x: int) -> None:
        """Ship it."""

    for key in ("old/{x}", "new/{x}"):
        keyed.app.tasks.unregister("keyed.ship") if "keyed.ship" in keyed.app.tasks else None
        task = keyed.app.task(ship, name="keyed.ship", shared=False, coordinate={"key": key})
        keyed.coordinator.submit(None, task.s(1), if_unknown="wait")
    assert [lane.key for lane in keyed.coordinator.lanes()] == ["new/1", "old/1"]


def test_the_caller_s_own_kind_of_result_is_given(keyed: Any) -> None:
    class Mine(AsyncResult):
        """Theirs."""

    assert type(keyed.app.send_task("keyed.add", (1, 2), result_cls=Mine)) is Mine


def test_options_of_the_submit_win_over_those_of_the_task(keyed: Any) -> None:
    keyed.coordinator.submit(None, keyed.once.s("first"))
    assert keyed.coordinator.submit(None, keyed.once.s("second")).outcome == "skipped"
    assert keyed.coordinator.submit(None, keyed.once.s("third"), when_busy="queue").outcome == "queued"
    with pytest.raises(InvalidJob, match=r"keyed\.plain: name a key"):
        keyed.coordinator.submit(None, keyed.plain.s(1))


def test_an_exchange_leads_to_a_queue_of_the_app_or_is_refused(keyed: Any) -> None:
    feeds = Exchange("feeds", "topic")
    usual = keyed.app.amqp.queues["celery"].exchange
    queues = Queue("news", feeds, "feeds.#"), Queue("fast", Exchange("quick"), "now"), Queue("slow", usual, "later")
    for queue in queues:
        keyed.app.amqp.queues.add(queue)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("celery", {}),
        ("fast", {"exchange": "quick", "routing_key": "now"}),
        ("celery", {"routing_key": "later"}),  # as Celery has it
        ("slow", {"exchange": usual.name, "routing_key": "later"}),
        ("news", {"queue": "news", "routing_key": "feeds.important"}),
        ("news", {"exchange": "feeds", "routing_key": "feeds.important"}),
        ("own", {"queue": Queue("own", Exchange("own"), "own")}),
    ]
    for name, options in asked:
        call = keyed.add.apply_async((1, 2), **options)
        kind = keyed.coordinator.store._client.hget(keyed.coordinator.store.key("job", call.id), "class")
        assert kind.decode().split("\n")[1] == name
    for wrong in ({"exchange": "nowhere", "routing_key": "x"}, {"exchange": usual.name, "routing_key": "none"}):
        with pytest.raises(InvalidJob, match=r"exchange '.*' with routing_key .* leads to no queue of the app"):
            keyed.add.apply_async((1, 2), **wrong)


def test_messages_of_protocol_1_are_refused(keyed: Any) -> None:
    keyed.app.conf.task_protocol = 1
    with pytest.raises(InvalidJob, match="protocol 2"):
        keyed.add.delay(1, 2)


@pytest.mark.parametrize("how", ["away", "hangs"])
def test_the_queue_of_rpc_is_declared_in_one_try(proxy: Proxy, redis_server: RedisServer, how: str) -> None:
    """With the default settings: Celery takes 20 s where the broker is away, and minutes where it hangs."""
    broker = proxy.url(1) if how == "hangs" else "redis://127.0.0.1:1/0"
    app, ship = _shipping(redis_server.url(0), redis_server.fresh_prefix(), broker, "rpc://")
    proxy.swallow()
    for job_id in ("one", "two"):
        with within(15), pytest.raises(StoreUnavailable, match="keeps the results") as caught:
            ship.apply_async(task_id=job_id)
        assert caught.value.job_id == job_id
    app.close()


@pytest.mark.parametrize("how", ["away", "hangs", "hangs after a cut"])
def test_a_call_leaves_the_redis_of_the_results_alone(proxy: Proxy, redis_server: RedisServer, how: str) -> None:
    """Celery takes 20 s where it is away, and minutes where it hangs, also when an earlier handle is collected."""
    backend = "redis://127.0.0.1:1/0" if how == "away" else proxy.url(1)
    app, ship = _shipping(redis_server.url(0), redis_server.fresh_prefix(), "memory://", backend)
    if how == "hangs after a cut":
        ship.apply_async(task_id="before")
        app.backend.client.ping()  # a connection with Celery's time limit of two minutes
        proxy.cut()
        proxy.heal()
    proxy.swallow()
    for job_id in ("one", "two"):
        with within(15):
            ship.apply_async(task_id=job_id)
        assert app.coordinator.job(job_id).state in ("ready", "waiting")
    app.close()


def _shipping(url: str, prefix: str, broker: str, backend: str | None = None, **settings: Any) -> tuple[Any, Any]:
    app: Any = Celery("shop", broker=broker, backend=backend, set_as_current=False)
    Coordinator(app, url=url, prefix=prefix, **settings)

    @app.task(name="shop.ship", shared=False, coordinate={"key": "k"})
    def ship() -> None:
        """Ship it."""

    return app, ship


def test_a_redis_that_does_not_answer_raises_an_error_of_both_libraries_with_the_id(proxy: Proxy) -> None:
    app, ship = _shipping(proxy.url(), "p", "memory://", timeout=1)
    proxy.swallow()
    with pytest.raises(StoreUnavailable) as caught:
        ship.apply_async(task_id="mine", retry=False)
    assert isinstance(caught.value, OperationalError)
    assert caught.value.job_id == "mine"
    app.coordinator.store.close()
    app.close()


def test_a_submit_whose_message_handlers_may_change_asks_no_backend(redis_server: RedisServer, prefix: str) -> None:
    app: Any = Celery("hooked", broker=redis_server.url(1), backend="redis://127.0.0.1:1/0", set_as_current=False)
    coordinator = Coordinator(app, url=redis_server.url(0), prefix=prefix)

    @app.task(name="hooked.ship", shared=False)
    def ship() -> None: ...

    def handler(headers: dict[str, object], **_: object) -> None:
        headers["tenant"] = "one"

    signals.before_task_publish.connect(handler)
    try:
        with within(15):
            coordinator.submit("k", ship.s(), job_id="j", if_unknown="wait")
    finally:
        signals.before_task_publish.disconnect(handler)
        coordinator.close()
        app.close()
    assert "tenant" in str(coordinator._lanes.spec("j"))
    coordinator.close()
