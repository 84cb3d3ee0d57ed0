"""beat_schedule.py is the file of its users: what stands there counts, and a mistake harms no other entry."""

import json
import re
from pathlib import Path

from tests.fleet.tasks.service import Service, beat
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

FIRST = """
from celery.schedules import crontab

BEAT_SCHEDULE = {
    "nodelist": {"schedule": 1.0, "task": "tasks.refresh.refresh_nodelist", "key": "nodelist", "when_busy": "skip"},
    "ordinary": {"schedule": 1.0, "task": "tasks.sync.complete_passes"},
    "hourly": {"schedule": crontab(minute=0), "task": "tasks.sync.complete_passes", "key": ["a", "b"]},
    "mistyped": {"shedule": 1.0, "task": "tasks.sync.complete_passes"},
    "no table": 15,
    "nobody's": {"schedule": 1.0, "task": "tasks.sync.complete_passe", "key": "c"},
}
"""
SECOND = FIRST.replace("1.0", "2.0").replace("ordinary", "renamed")


def test_a_user_edits_the_file(own_redis: RedisServer, tmp_path: Path) -> None:
    file = tmp_path / "beat_schedule.py"
    launcher = ["env", "-C", str(tmp_path)]
    with Service(own_redis, tmp_path, []) as service:
        file.write_text(FIRST)
        with beat(service, "first", launcher=launcher):
            wait_until(lambda: ticks(service, "first") >= {"nodelist", "ordinary"}, what=lambda: service.log("first"))
            assert whens(service) == {
                "nodelist": "every 1",
                "ordinary": "every 1",
                "hourly": HOURLY,
                "nobody's": "every 1",
            }
            log = service.log("first")
        for sentence in (
            "'mistyped' is left out: there is no field 'shedule'; did you mean 'schedule'?",
            "'no table' is left out: 15 is no entry",
            "this app has no task 'tasks.sync.complete_passe'; did you mean 'tasks.sync.complete_passes'?",
        ):
            assert log.count(sentence) == 1
        assert "Traceback" not in log
        file.write_text(SECOND)
        with own_redis.client() as client:
            client.hset(service.coordinator.store.key("schedule", "beat_schedule"), "seen", 0)
        with beat(service, "second", launcher=launcher, TASKS_REFRESH_INTERVAL="3"):
            wait_until(lambda: ticks(service, "second") >= {"nodelist", "renamed"}, what=lambda: service.log("second"))
            assert whens(service) == {
                "nodelist": "every 3",
                "renamed": "every 2",
                "hourly": HOURLY,
                "nobody's": "every 2",
            }


HOURLY = "crontab 0 * * * *"


def ticks(service: Service, name: str) -> set[str]:
    return set(re.findall(r"tick (.+)@\S+: (?:queued|skipped|sent)", service.log(name)))


def whens(service: Service) -> dict[str, str]:
    shown = json.loads(service.call("schedule", "--json").stdout)["entries"]
    return {one["name"]: one["text"] for one in shown}
