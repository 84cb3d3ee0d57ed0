"""A worker's unacked messages, on a real Redis broker: noted while it holds them, put back once, never lost."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from celery import Celery

from coordinator import Coordinator
from coordinator.broker.doorbells import TASK
from coordinator.worker.unacked import Unacked, keep, note, open_unacked
from tests.harness.redis import RedisServer

OVER = "old one@test"  # the worker that is dead
OWN = "coordinator.node.one@test"


class Broker(NamedTuple):
    """An app's broker: `client` reads it; the channel is that of the worker `one@test` in its life `old`."""

    app: Celery
    channel: Any
    client: Any
    prefix: str

    def messages(self, name: str) -> list[dict[str, Any]]:
        """Its messages, the next one first."""
        return [json.loads(stored) for stored in reversed(self.client.lrange(self.prefix + name, 0, -1))]

    def args(self, name: str) -> list[Any]:
        return [message["headers"]["argsrepr"] for message in self.messages(name)]

    def tags(self) -> set[str]:
        return set(self.client.smembers(f"{self.prefix}coordinator.hand:old"))

    def kept(self) -> int:
        return int(self.client.hlen(f"{self.prefix}unacked"))

    def send(self, what: str, queue: str = "celery", **options: Any) -> None:
        self.app.send_task("shop.work", [what], queue=queue, ignore_result=True, **options)


@pytest.fixture
def broker(redis_server: RedisServer, prefix: str) -> Iterator[Broker]:
    app = Celery("shop", broker=redis_server.url(1), set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": f"{prefix}."}
    Coordinator(app, url=redis_server.url(0), prefix=prefix, node_ttl=1).incarnation = "old"
    with app.connection_for_read() as connection, redis_server.client(1) as client:
        note(app, connection, "one@test")
        connection.default_channel.do_restore = False  # it dies, rather than close
        yield Broker(app, connection.default_channel, client, f"{prefix}.")
    app.close()


@pytest.fixture
def warden(broker: Broker) -> Iterator[Unacked]:
    (unacked,) = open_unacked(broker.app, "two@test", "new")
    yield unacked
    unacked.close()


@pytest.fixture
def other(broker: Broker) -> Iterator[Unacked]:
    (unacked,) = open_unacked(broker.app, "three@test", "newer")
    yield unacked
    unacked.close()


def test_a_message_is_noted_from_being_fetched_until_it_is_acknowledged_rejected_or_given_back(
    broker: Broker,
) -> None:
    ends: tuple[Callable[[Any], None], ...] = (
        lambda message: message.ack(),
        lambda message: message.reject(),
        lambda message: message.requeue(),
    )
    for end in ends:
        broker.send("a")
        message = broker.channel.basic_get("celery")
        assert broker.tags() == {message.delivery_tag}
        end(message)
        assert (broker.tags(), broker.kept()) == (set(), 0)
    broker.channel.basic_get("celery")
    assert len(broker.tags()) == 1
    broker.channel.qos.restore_unacked()
    assert (broker.tags(), broker.kept(), broker.args("celery")) == (set(), 0, ["['a']"])


def test_the_unacked_messages_of_a_dead_worker_go_to_the_front_of_its_queue_as_delivered_again(
    broker: Broker, warden: Unacked
) -> None:
    broker.send("first")
    broker.send("patient", priority=6)
    for _ in range(2):
        broker.channel.basic_get("celery")
    broker.send("second")
    warden.give_back(OVER, [OVER])
    assert broker.args("celery") == ["['first']", "['second']"]
    assert broker.messages("celery")[0]["properties"]["delivery_info"]["redelivered"] is True
    assert broker.args("celery\x06\x166") == ["['patient']"]
    assert (broker.tags(), broker.kept()) == (set(), 0)
    assert broker.client.zrange(f"{broker.prefix}coordinator.hands:shop", 0, -1) == []


def test_a_worker_that_left_no_message_behind_is_no_warning(
    broker: Broker, warden: Unacked, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended in order, and the next worker of that name is there perhaps."""
    warden.give_back(OVER, [OVER])
    assert caplog.messages == []


def test_who_is_behind_in_putting_back_takes_nothing_from_whom_it_was_given_to_since(
    broker: Broker, warden: Unacked, other: Unacked
) -> None:
    """A warden stands still between reading and putting back; another did it, and a living worker has the message.

    It was put back before, so that it looks the same each time.
    """
    broker.send("a")
    broker.channel.basic_get("celery")
    other.give_back(OVER, [OVER])
    (tag,) = [broker.channel.basic_get("celery").delivery_tag.encode()]
    kept = broker.client.hget(f"{broker.prefix}unacked", tag).encode()
    assert warden.tags("old") == [tag]
    other.give_back(OVER, [OVER])
    broker.app.coordinator.incarnation = "living"
    with broker.app.connection_for_read() as connection:
        note(broker.app, connection, "four@test")
        message = connection.default_channel.basic_get("celery")
        assert message.delivery_tag.encode() == tag
        assert broker.client.hget(f"{broker.prefix}unacked", tag).encode() == kept
        assert warden.put_back("old", tag, kept, "") == 0
        assert (broker.messages("celery"), broker.kept()) == ([], 1)
        message.ack()


def test_who_is_killed_between_reading_and_putting_back_leaves_it_to_the_next(
    broker: Broker, warden: Unacked, other: Unacked
) -> None:
    for what in "abc":
        broker.send(what)
        broker.channel.basic_get("celery")
    tags = other.tags("old")
    kept = broker.client.hget(f"{broker.prefix}unacked", tags[0]).encode()
    assert other.put_back("old", tags[0], kept, "") == 1
    other.close()
    warden.give_back(OVER, [OVER])
    assert sorted(broker.args("celery")) == ["['a']", "['b']", "['c']"]
    assert (broker.tags(), broker.kept()) == (set(), 0)


def test_two_wardens_that_put_back_at_once_put_each_message_back_once(
    broker: Broker, warden: Unacked, other: Unacked
) -> None:
    for number in range(300):
        broker.send(f"{number:03}", queue=OWN if number % 3 else "celery")
    for _ in range(100):
        broker.channel.basic_get("celery")
    start = threading.Barrier(2)

    def give_back(unacked: Unacked) -> None:
        start.wait()
        for _ in range(5):  # on a busy machine it stops early
            unacked.give_back(OVER, [OVER])

    threads = [threading.Thread(target=give_back, args=(unacked,)) for unacked in (warden, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(broker.args("celery")) == [f"['{number:03}']" for number in range(300)]
    assert (broker.tags(), broker.kept(), broker.messages(OWN)) == (set(), 0, [])


def test_a_dead_nodes_own_queue_goes_to_the_default_one_but_for_doorbells_and_what_is_no_message(
    broker: Broker, warden: Unacked
) -> None:
    broker.send("held", queue=OWN)
    broker.app.send_task(TASK, ["bell"], queue=OWN, ignore_result=True)
    for _ in range(2):
        broker.channel.basic_get(OWN)
    broker.send("first", queue=OWN)
    broker.app.send_task(TASK, ["bell"], queue=OWN, ignore_result=True)
    broker.send("patient", queue=OWN, priority=6)
    broker.client.lpush(broker.prefix + OWN, "no json")
    broker.send("last", queue=OWN)
    broker.send("there")
    warden.give_back(OVER, [OVER])
    assert broker.args("celery") == ["['held']", "['there']", "['first']", "['last']"]
    assert broker.args("celery\x06\x166") == ["['patient']"]
    moved = [message["properties"]["delivery_info"] for message in broker.messages("celery")]
    assert {(info["exchange"], info["routing_key"]) for info in moved[:1] + moved[2:]} == {("", "celery")}
    assert broker.client.lrange(broker.prefix + OWN, 0, -1) == ["no json"]
    assert broker.kept() == 0


def test_a_long_own_queue_is_moved_whole_and_in_order_in_as_many_steps_as_it_takes(
    broker: Broker, warden: Unacked
) -> None:
    broker.send("000000", queue=OWN)
    (one,) = broker.client.lrange(broker.prefix + OWN, 0, -1)
    copies = [one.replace("000000", f"{number:06}") for number in range(1, 2_500)]
    broker.client.lpush(broker.prefix + OWN, "no json", *copies)
    workers = f"{broker.prefix}coordinator.hands:shop"
    while broker.client.zscore(workers, OVER):
        warden.give_back(OVER, [OVER])
    assert broker.args("celery") == [f"['{number:06}']" for number in range(2_500)]
    assert broker.client.lrange(broker.prefix + OWN, 0, -1) == ["no json"]


def test_the_own_queue_stays_where_another_worker_of_that_name_lives(broker: Broker, warden: Unacked) -> None:
    broker.send("held", queue=OWN)
    broker.channel.basic_get(OWN)
    broker.send("first", queue=OWN)
    keep(broker.app, broker.channel, "next one@test")
    warden.give_back(OVER, [OVER])
    assert broker.args(OWN) == ["['held']", "['first']"]
    assert broker.messages("celery") == []


def test_after_a_silence_no_worker_counts_as_dead_for_as_long_as_a_deadline_lasts(
    broker: Broker, warden: Unacked
) -> None:
    broker.send("a")
    broker.channel.basic_get("celery")
    broker.client.zadd(f"{broker.prefix}coordinator.hands:shop", {OVER: 1})
    for _ in range(5):
        warden.step()
    assert broker.messages("celery") == []


def test_a_broker_that_is_no_redis_is_left_alone(broker: Broker) -> None:
    app = Celery("shop", broker="memory://", set_as_current=False)
    assert open_unacked(app, "one@test", "old") == []
    app.coordinator = broker.app.coordinator
    with app.connection_for_read() as connection:
        qos = connection.default_channel.qos
        note(app, connection, "one@test")
        assert connection.default_channel.qos is qos


def test_a_broker_that_refuses_scripts_is_consumed_as_without_us(
    broker: Broker, own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with own_redis.client() as client:
        client.acl_setuser("plain", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all", "-@scripting"])
    app = Celery("shop", broker=f"redis://plain:pw@127.0.0.1:{own_redis.port}/0", set_as_current=False)
    app.coordinator = broker.app.coordinator
    with app.connection_for_read() as connection:
        note(app, connection, "one@test")
        app.send_task("shop.work", queue="celery", ignore_result=True)
        connection.default_channel.basic_get("celery").ack()
    app.close()
    assert "the broker refuses to note unacked messages of one@test" in caplog.text
