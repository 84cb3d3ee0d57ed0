"""An app as `bench.app`, without the coordinator."""

import os

from celery import Celery

app = Celery("plain", broker=f"{os.environ.get('BENCH_REDIS', 'redis://127.0.0.1:6379')}/1")
