"""The rows of `make matrix`: pairs of versions rather than all combinations, and the tests that each row runs."""

from typing import NamedTuple

# Does the worker consume again when the broker was away?
BROKER = ("tests/fleet/test_broker_restarts.py",)
# All that leans on the insides of Celery, kombu, redis-py or the server; at most 3 minutes on a quiet machine.
WHOLE = (
    *BROKER,
    "tests/fleet/shared/test_attempts.py",
    "tests/fleet/shared/test_chains.py",
    "tests/fleet/shared/test_keyed_canvas.py",
    "tests/fleet/shared/test_keyed_tasks.py",
    "tests/fleet/shared/test_keyed_skips.py",
    "tests/fleet/shared/test_remote_control.py",
    "tests/fleet/shared/test_results.py",
    "tests/fleet/shared/test_retries.py",
    "tests/fleet/shared/test_rollback.py",
    "tests/fleet/shared/test_subresults.py",
    "tests/fleet/shared/test_usual_tasks.py",
    "tests/fleet/test_beats.py",
    "tests/fleet/test_broker_loss.py",
    "tests/fleet/test_errands.py",
    "tests/fleet/test_keyed_arrivals.py",
    "tests/fleet/test_left_on_broker.py",
    "tests/fleet/test_limits.py",
    "tests/fleet/test_rescue.py",
    "tests/fleet/test_task_events.py",
    "tests/fleet/test_watched.py",
    "tests/coordinator/broker",
    "tests/coordinator/store",
    "tests/coordinator/worker",
)


class Row(NamedTuple):
    """`redis`: of redis-py. `also`: further requirements. `forced`: pip's metadata refuses the pair, so it is installed
    without it.
    """

    name: str
    python: str
    celery: str
    kombu: str
    redis: str
    server: str
    tests: tuple[str, ...] = WHOLE
    also: tuple[str, ...] = ()
    forced: bool = False


ROWS = (
    Row("celery-5.4", "3.11", "5.4.0", "5.4.2", "5.2.1", "redis-7.0", also=("pydantic==2.7.0", "click==8.1.8")),
    Row("celery-5.5", "3.12", "5.5.3", "5.5.4", "5.2.1", "valkey-7.2"),
    Row("celery-5.6", "3.13", "5.6.3", "5.6.2", "6.4.0", "redis-8.0"),
    Row("celery-5.6-kombu-5.7", "3.12", "5.6.3", "5.7.0", "7.4.1", "valkey-8.1"),
    Row("celery-5.7-redis-py-6", "3.11", "5.7.0", "5.7.0", "6.4.0", "valkey-9.0"),
    Row("celery-5.7", "3.14", "5.7.0", "5.7.0", "8.1.0", "valkey-9.1"),
    Row("kombu-5.4-redis-py-5.3", "3.11", "5.4.0", "5.4.2", "5.3.1", "redis-7.0", BROKER),
    Row("kombu-5.4-redis-py-8.1", "3.11", "5.4.0", "5.4.2", "8.1.0", "redis-7.0", BROKER, forced=True),
    Row("kombu-5.5-redis-py-5.3", "3.11", "5.5.3", "5.5.4", "5.3.1", "redis-7.0", BROKER, forced=True),
    Row("kombu-5.5-redis-py-8.1", "3.11", "5.5.3", "5.5.4", "8.1.0", "redis-7.0", BROKER, forced=True),
    Row("kombu-5.6-redis-py-5.2", "3.11", "5.6.3", "5.6.2", "5.2.1", "redis-7.0", BROKER),
    Row("kombu-5.6-redis-py-7.0", "3.11", "5.6.3", "5.6.2", "7.0.1", "redis-7.0", BROKER, forced=True),
    Row("kombu-5.6-redis-py-7.4", "3.11", "5.6.3", "5.6.2", "7.4.1", "redis-7.0", BROKER, forced=True),
    Row("kombu-5.6-redis-py-8.1", "3.11", "5.6.3", "5.6.2", "8.1.0", "redis-7.0", BROKER, forced=True),
    Row("kombu-5.7-redis-py-7.0", "3.11", "5.7.0", "5.7.0", "7.0.1", "redis-7.0", BROKER),
)
