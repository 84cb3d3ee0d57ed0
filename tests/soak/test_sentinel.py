"""Many failovers under load: masters are killed and paused, and come back. It prints what each way of setting lost."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.failover import Load, behind
from tests.harness.fleet import Fleet
from tests.harness.redis import RedisServer
from tests.harness.sentinel import Sentinels

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

ROUNDS = 10
OPTIONS = {
    "no replica is asked": (),
    "one replica at least": ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2"),
}


@pytest.fixture(params=OPTIONS)
def sentinels(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sentinels]:
    with Sentinels(tmp_path / "sentinels", *OPTIONS[request.param]) as found:
        yield found


@pytest.fixture
def fleet(redis_server: RedisServer, sentinels: Sentinels, prefix: str, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(redis_server, prefix, tmp_path, timeout=1) as fleet:
        behind(fleet, sentinels)
        yield fleet


def test_many_failovers_lose_the_last_moment_at_most_and_keep_every_lane_in_order(
    fleet: Fleet, sentinels: Sentinels, request: pytest.FixtureRequest
) -> None:
    chance, took, failed = random.Random(7), list[float](), list[float]()
    fleet.worker("one", 2)
    fleet.worker("two", 2)
    with Load(fleet, keys=12, pause=0.1) as load:
        for number in range(ROUNDS):
            load.goes_on()
            time.sleep(chance.uniform(0, 2))
            master, paused = sentinels.master(), number % 2
            failed.append(time.monotonic())
            (master.pause if paused else master.kill)()
            sentinels.after(master)
            if paused:
                time.sleep(chance.uniform(0, 3))
                master.resume()
                load.goes_on(60)
            else:
                load.goes_on(60)
                master.start()
            took.append(time.monotonic() - failed[-1])
            sentinels.settle()
        load.goes_on()
    found = load.account()

    lost = [load.acknowledged[one] for one in found.lost]
    before = sorted(round(at - max((one for one in failed if one < at), default=0), 2) for at in lost)
    print(f"\n{request.node.name}: {ROUNDS} failovers, {found.acknowledged} acknowledged, {len(lost)} lost")
    print(f"lost at s after a failure: {before}; {found.again} runs again, {found.at_once} at once")
    print(f"jobs went on after {min(took):.1f} to {max(took):.1f} s")
