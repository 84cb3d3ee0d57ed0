"""RabbitMQ is killed, stopped and filled under a fleet for minutes. A seed that fails is told and can be run again."""

import random
import time
from pathlib import Path

import pytest

from coordinator import UnknownJob
from coordinator.celery_patches.confirmed import confirmed
from tests.coordinator.warden.inbox.senders import QUEUE
from tests.harness.fleet import Fleet
from tests.harness.rabbitmq import Broker, RabbitServer
from tests.harness.redis import RedisServer
from tests.harness.storm import Storm
from tests.harness.waiting import wait_until, within

pytestmark = [pytest.mark.soak, pytest.mark.broker, pytest.mark.timeout(1200)]

MISHAPS, EACH = 12, 200  # jobs of which some are submitted before a mishap and some meanwhile


def hurt(server: RabbitServer, how: str) -> None:
    {"killed": server.kill, "stopped": server.pause, "full": lambda: server.alarm(True)}[how]()


def mend(server: RabbitServer, how: str) -> None:
    {"killed": server.start, "stopped": server.resume, "full": lambda: server.alarm(False)}[how]()


@pytest.mark.parametrize("seed", range(3))
def test_every_job_and_every_accepted_request_is_done_and_every_lane_keeps_its_order(
    redis_server: RedisServer, rabbitmq_server: RabbitServer, prefix: str, tmp_path: Path, seed: int
) -> None:
    chance, broker = random.Random(seed), Broker(rabbitmq_server, rabbitmq_server.vhost())
    with Fleet(redis_server, prefix, tmp_path, broker, sweep=0.2) as fleet:
        nodes = [fleet.worker(name, 2) for name in ("one", "two", "three")]
        app, storm = fleet.shop.app, Storm(fleet, jobs=MISHAPS * EACH, keys=40, kills=0, seed=seed)
        left, storm.ids = iter(storm.names), []
        asked = list[str]()

        def submit(number: int) -> None:
            for _ in range(number):
                key, name = next(left)
                with within(10):
                    work = fleet.shop.work.s(f"{key}:{name}", chance.uniform(0, 0.05))
                    storm.ids.append(fleet.coordinator.submit(key, work).id)

        for number in range(MISHAPS):
            before, how = chance.randrange(EACH), chance.choice(("killed", "killed", "stopped", "full"))
            submit(before)
            with confirmed(app) as producer:
                asked.append(f"r{number}")
                request = {"name": "a", "id": asked[-1]}
                producer.publish(request, exchange="", routing_key=QUEUE, serializer="json", retry=True)
            hurt(rabbitmq_server, how)
            submit(EACH - before)
            time.sleep(chance.uniform(0, 10))  # the storm's own rhythm
            mend(rabbitmq_server, how)
        wait_until(lambda: all(fleet.coordinator.job(one).over for one in storm.ids), 120, fleet.logs)
        storm.look()
        wait_until(lambda: all(_is_done(fleet, one) for one in asked), 60, fleet.logs)
        assert [node.process.poll() for node in nodes] == [None] * 3


def _is_done(fleet: Fleet, job_id: str) -> bool:
    try:
        return fleet.coordinator.job(job_id).state == "succeeded"
    except UnknownJob:
        return False
