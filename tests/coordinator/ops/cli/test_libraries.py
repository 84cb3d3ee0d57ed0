"""`coordinator libraries`: the libraries of functions on a server, and those that an older version left."""

from coordinator.core.store import library
from tests.coordinator.core.store.stores import store_of
from tests.coordinator.core.store.test_library import OTHER
from tests.harness.command import Call
from tests.harness.redis import RedisServer


def test_the_command_lists_libraries_and_removes_old_ones(call: Call, own_redis: RedisServer) -> None:
    url = own_redis.url(0)
    store, newer = store_of(url, timeout=5), store_of(url, timeout=5)
    newer.library = OTHER
    store.step("fence_next")
    newer.step("fence_next")
    store._client.function_load("#!lua name=theirs\nredis.register_function('f', function() return 1 end)")
    mine = library.current()
    listed = call("libraries", COORDINATOR_URL=url).stdout
    rows = {line.split()[0]: line.split()[1:] for line in listed.splitlines()[1:]}
    assert rows == {
        OTHER.name: [OTHER.digest, "yes", "-"],
        mine.name: [mine.digest, "yes", "this"],
        "theirs": ["-", "no", "-"],
    }
    assert '"current": true' in call("libraries", "--json", COORDINATOR_URL=url).stdout

    def refused(*args: str) -> str:
        result = call("libraries", "remove", *args, COORDINATOR_URL=url)
        assert result.exit_code == 1
        return result.stderr

    assert "no library 'unknown'" in refused("unknown")
    assert "not the coordinator's" in refused("theirs")
    assert "--force" in refused(mine.name)
    assert call("libraries", "remove", OTHER.name, COORDINATOR_URL=url).stdout == f"removed {OTHER.name}\n"
    assert [one.name for one in store.libraries()] == sorted([mine.name, "theirs"])
    assert call("libraries", "remove", mine.name, "--force", COORDINATOR_URL=url).exit_code == 0
    assert int(newer.step("fence_next")) < int(store.step("fence_next")), "each loads its own again"
    store.close()
    newer.close()
