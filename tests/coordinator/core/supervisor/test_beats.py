"""What the beats of a node say and hear, also while its supervisor is busy."""

from itertools import groupby, pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.core.fleet import processes
from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from coordinator.core.supervisor import supervisor as module
from coordinator.core.supervisor.supervisor import Supervisor
from tests.coordinator.core.supervisor.test_supervisor import supervisor_of
from tests.harness.hand_node import Puppet
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import looking


def test_a_node_lives_while_its_supervisor_has_much_to_do_on_a_slow_redis(
    redis_server: RedisServer, prefix: str
) -> None:
    """Each answer takes a tenth of the time for which a node may be silent, and eight processes are gone."""
    with Proxy(redis_server.port) as proxy:
        supervisor = supervisor_of(redis_server, prefix, url=proxy.url(0), node_ttl=5.0, timeout=5)
        node = Puppet(Store(Settings.load({"url": redis_server.url(0), "prefix": prefix}, {}, {})))
        supervisor.step()
        for number in range(8):
            node.submit(f"a{number}", job_id=f"j{number}")
            assert node.take(runner=f"999999999.1.{number}")
        with looking(lambda: bool(node.nodes.living()), pause=0.02) as seen:
            proxy.delay = 0.5
            supervisor.step()
        assert len(seen) > 5
        assert all(seen), "it was silent for too long"
        assert node.work() == {}
        assert len(node.order()) == 8


def test_a_beat_says_when_maintenance_has_something_to_do(redis_server: RedisServer, prefix: str) -> None:
    supervisor = supervisor_of(redis_server, prefix)
    node = Puppet(supervisor.store)
    supervisor.step()
    supervisor.step()
    assert not supervisor.maintenance_due
    node.submit("a", job_id="owed", tell=True)
    node.finish(node.must_take())
    node.store._client.zadd(node.store.key("unsent", "shop"), {"owed": 1})
    supervisor.step()
    assert supervisor.maintenance_due
    node.store.step("notices_sent", "shop", "owed")
    supervisor.step()
    assert not supervisor.maintenance_due


@pytest.mark.parametrize("kind", ["unsent", "parked", "troubles"])
def test_maintenance_is_due_with_the_first_of_each_kind_and_not_before(
    redis_server: RedisServer, prefix: str, kind: str
) -> None:
    supervisor = supervisor_of(redis_server, prefix)
    supervisor.step()
    list_, now = supervisor.store.key(kind, "shop"), supervisor.store.now()
    for due in (now + 600_000, now):
        supervisor.store._client.zadd(list_, {"one": due})
        supervisor.step()
        assert supervisor.maintenance_due is (due == now)
    supervisor.store._client.delete(list_)
    supervisor.leave()


def test_an_idle_supervisor_asks_one_thing_at_a_look_while_another_one_sweeps(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = supervisor_of(redis_server, prefix, sweep=30, lock_ttl=100, node_ttl=100)
    node = Puppet(Store(supervisor.settings))
    supervisor.step()
    asked: list[str] = []
    step, read = supervisor.store.step, supervisor.store.read
    monkeypatch.setattr(supervisor.store, "step", lambda name, *args: asked.append(name) or step(name, *args))
    monkeypatch.setattr(supervisor.store, "read", lambda name, *args: asked.append(name) or read(name, *args))
    supervisor.step()
    assert asked == ["node_beat"]
    node.submit("a", job_id="j")
    node.take(runner="999999999.1.1")  # its process is gone
    supervisor.step()
    assert asked[1:3] == ["node_beat", "HGETALL"]
    assert node.lanes.job("j").losses == 1
    asked.clear()
    node.store._client.hset(node.store.key("swept"), "last", 1)
    supervisor.step()
    assert asked == ["node_beat", "sweep"]
    node.store._client.hset(node.store.key("swept"), "last", 2**50)  # a server whose clock went back
    supervisor.step()
    assert asked[2:] == ["node_beat", "sweep"]


def test_a_supervisor_gives_a_sign_of_life_after_every_few_pieces_of_its_work(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many runners there are: whatever it asks or looks at may take long."""
    did: list[str] = []

    def noting(what: str, owner: object, name: str) -> None:
        act = getattr(owner, name)

        def noted(*args: Any, **options: Any) -> Any:
            did.append(what)
            return act(*args, **options)

        monkeypatch.setattr(owner, name, noted)

    noting("sign", Supervisor, "_heartbeat")
    supervisor = supervisor_of(redis_server, prefix)
    node = Puppet(supervisor.store)
    supervisor.step()
    for number in range(5):
        node.submit(f"a{number}")
        node.take(runner=f"999999999.1.{number}")  # its process is gone
    living = {}
    for number in range(1500):
        writer = supervisor.status_file.writer()
        living[writer.start("r")] = f"token-{number:08} 0 j{number}"
        writer.begin(f"token-{number:08}", None)
    node.store._client.hset(node.store.key("work", "one"), mapping=living)
    supervisor.watch._last_step = 0  # so that it renews all leases
    for owner, name in ((supervisor.store, "step"), (supervisor.store, "read"), (processes, "condition")):
        noting("work", owner, name)
    for act in (supervisor.step, supervisor.leave):
        did.clear()
        act()
        assert did.count("work") > 1500
        assert max(len(list(pieces)) for what, pieces in groupby(did) if what == "work") <= 4


def test_a_supervisor_at_work_beats_several_times_while_its_node_may_be_silent(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, beats = SimpleNamespace(seconds=1000.0), list[float]()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now.seconds, time=lambda: 0.0))
    supervisor = supervisor_of(redis_server, prefix, node_ttl=6)
    supervisor.step()
    beat = supervisor.beat
    monkeypatch.setattr(supervisor, "beat", lambda: (beats.append(now.seconds), beat()))  # type: ignore[func-returns-value]
    for _ in range(300):
        now.seconds += 0.1
        supervisor._heartbeat()
    assert max(later - one for one, later in pairwise([1000.0, *beats])) <= 6 / 3
    assert len(beats) <= 30, "one a second would do"
    supervisor.leave()
