"""celery-redbeat with many entries, spread over their interval. `python -m bench.peers.redbeat_app ENTRIES INTERVAL`"""

import os
import sys
from datetime import UTC, datetime, timedelta

from celery import Celery
from celery.schedules import schedule
from redbeat import RedBeatSchedulerEntry

URL = os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379")

app = Celery("bench_redbeat", broker=f"{URL}/1")
app.conf.update(redbeat_redis_url=f"{URL}/0", redbeat_lock_key=None, beat_max_loop_interval=1)


def main() -> None:
    entries, interval = int(sys.argv[1]), int(sys.argv[2])
    now = datetime.now(UTC)
    for number in range(entries):
        last = now - timedelta(seconds=interval * (1 - number / entries) - 20)
        RedBeatSchedulerEntry(f"e{number}", "nothing", schedule(interval), last_run_at=last, app=app).save()


if __name__ == "__main__":
    main()
