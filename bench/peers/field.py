"""The field: each peer with its versions, how it submits here, and what it promises by default."""

from typing import NamedTuple

CLIENT = ("redis==8.1.0", "hiredis==3.5.0")
CELERY = ("celery[redis]==5.7.0", "kombu==5.7.0", *CLIENT)


class Peer(NamedTuple):
    """`name` is that of its module in `adapters`. Without requirements it is ours, of this environment."""

    name: str
    title: str
    requirements: tuple[str, ...]
    submits: str
    order: str
    killed: str
    alone: str
    workers: int = 1
    postgres: bool = False


class Holder(NamedTuple):
    """A lock. `name` is that of its module in `locks`."""

    name: str
    title: str
    requirements: tuple[str, ...]
    in_turn: str
    renewed: str
    fence: str


OURS = "ours"

PEERS = (
    Peer(OURS, "celery-coordinator", (), "500 at once", "yes", "runs again", "yes"),
    Peer("celery_raw", "Celery 5.7.0", CELERY, "one by one", "no", "what ran is lost", "no"),
    Peer("celery_singleton", "celery-singleton 0.3.1", ("celery-singleton==0.3.1", *CELERY),
         "one by one", "no", "lost, its lock stays", "drops the others"),
    Peer("celery_once", "celery-once 3.0.1", ("celery-once==3.0.1", *CELERY),
         "one by one", "no", "lost, its lock stays 1 h", "refuses the others"),
    Peer("dramatiq", "dramatiq 2.2.1", ("dramatiq==2.2.1", *CLIENT),
         "one by one", "no", "runs again after 60 s", "no"),
    Peer("rq", "RQ 3.0.0", ("rq==3.0.0", *CLIENT), "500 at once", "no", "counts as failed", "no"),
    Peer("rq_keyed", "RQ 3.0.0, rate limit 1", ("rq==3.0.0", *CLIENT),
         "one by one", "to the second", "counts as failed", "yes"),
    Peer("huey", "huey 3.5.4", ("huey==3.5.4", *CLIENT), "one by one", "no", "what ran is lost", "no"),
    Peer("taskiq", "taskiq 0.13.0, lists", ("taskiq==0.13.0", "taskiq-redis==1.2.4", *CLIENT),
         "100 side by side", "no", "what ran is lost", "no"),
    Peer("procrastinate", "procrastinate 3.10.0",
         ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9", *CLIENT),
         "500 at once", "yes", "stays until you retry it", "yes", workers=2, postgres=True),
)  # fmt: skip

HOLDERS = (
    Holder(OURS, "coordinator.lock", (), "yes", "yes", "yes"),
    Holder("redis_py", "redis-py 8.1.0 Lock", CLIENT, "no", "no", "no"),
    Holder("pottery", "pottery 3.0.1 Redlock", ("pottery==3.0.1", *CLIENT), "no", "no", "no"),
    Holder("redis_lock", "python-redis-lock 4.0.1", ("python-redis-lock==4.0.1", *CLIENT), "no", "on demand", "no"),
)
