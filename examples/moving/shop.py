"""The app of these examples: celery -A examples.moving.shop worker. It runs what you have beside what you write."""

import os

from celery import Celery

from coordinator import Coordinator

REDIS = os.environ.get("SHOP_REDIS", "redis://localhost:6379")
PREFIX = os.environ.get("SHOP_PREFIX", "")  # of all that is ours in a Redis that others use, too
LIBRARIES = ("celery_singleton", "celery_once", "redis_lock")
SYSTEMS = ("oddjob", "opendaylight", "jobscheduler", "dataone", "newspaper")

app = Celery("shop", broker=f"{REDIS}/1", backend=f"{REDIS}/2")
app.conf.include = [f"examples.moving.{when}.{name}" for when in ("before", "after") for name in LIBRARIES]
app.conf.include += [f"examples.moving.after.{name}" for name in SYSTEMS]
app.conf.broker_transport_options = app.conf.result_backend_transport_options = {"global_keyprefix": PREFIX}
app.conf.singleton_backend_url = f"{REDIS}/3"
app.conf.singleton_key_prefix = f"{PREFIX}SINGLETONLOCK_"
app.conf.ONCE = {"backend": "celery_once.backends.Redis", "settings": {"url": f"{REDIS}/3"}}
app.conf.redbeat_redis_url = f"{REDIS}/3"
app.conf.redbeat_redis_options = {}
app.conf.redbeat_key_prefix = f"{PREFIX}redbeat:"
coordinator = Coordinator(app)
