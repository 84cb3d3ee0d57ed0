"""The rows of `make matrix`: pairs of versions rather than all combinations, and the tests that each row runs."""

from typing import NamedTuple

# Does the worker consume again when the broker was away?
BROKER = ("tests/fleet/test_broker_restarts.py",)
# All that leans on the insides of Celery, kombu, redis-py or the server; at most 3 minutes on a quiet machine.
WHOLE = (
    *BROKER,
    "tests/fleet/shared/test_attempts.py",
    "tests/fleet/shared/test_keyed_canvas.py",
    "tests/fleet/shared/test_keyed_tasks.py",
    "tests/fleet/shared/test_remote_control.py",
    "tests/fleet/shared/test_results.py",
    "tests/fleet/shared/test_retries.py",
    "tests/fleet/shared/test_rollback.py",
    "tests/fleet/shared/test_subresults.py",
    "tests/fleet/rabbitmq/test_away.py",
    "tests/fleet/test_beats.py",
    "tests/fleet/test_celery_settings.py",
    "tests/fleet/test_cluster.py",
    "tests/fleet/shared/test_broker_loss.py::test_a_worker_survives_its_broker_and_everything_ends_once[normal]",
    "tests/fleet/test_maintenance.py::test_an_owed_result_goes_out_while_the_only_slot_is_busy_and_the_main_process_with_it",
    "tests/fleet/shared/test_two_nodes.py::test_a_hundred_jobs_on_one_key_run_in_order_and_never_two_at_once",
    "tests/fleet/shared/test_runner.py::test_what_a_killed_node_had_in_hand_is_done_by_another_one",
    "tests/fleet/shared/test_keyed_arrivals.py::test_a_stranger_s_message_lands_in_the_lane_under_its_own_id",
    "tests/fleet/shared/test_keyed_arrivals.py::test_eta_expires_and_revoke_hold_and_what_cannot_be_a_job_fails",
    "tests/fleet/shared/test_two_nodes.py::test_a_limit_holds_on_a_fleet_and_one_of_weight_all_is_not_starved",
    "tests/fleet/shared/test_node_loss.py::"
    "test_a_sub_task_that_dies_with_its_node_is_a_loss_of_the_job_that_waits_for_it",
    "tests/fleet/test_watched.py",
    "tests/fleet/shared/test_worker.py::test_a_running_job_that_is_cancelled_is_stopped_and_the_lane_goes_on",
    "tests/fleet/shared/test_worker.py::test_limits_stop_an_attempt_and_the_lane_goes_on",
    "tests/coordinator/aio",
    "tests/coordinator/core/async_tasks",
    "tests/coordinator/core/celery_patches",
    "tests/fleet/test_async_tasks.py",
    "tests/coordinator/ops/dashboard/test_doors.py::test_flowers_login_is_the_pages_login_under_its_prefix",
    "tests/coordinator/ops/dashboard/test_doors.py::test_flower_hands_on_no_more_of_a_body_than_the_pages_take",
    "tests/coordinator/core/runner",
    "tests/coordinator/scheduler/test_schedules.py",
    "tests/coordinator/core/store/test_client.py",
    "tests/coordinator/core/store/test_cluster.py::test_while_a_slot_moves_calls_wait_and_then_go_on_at_the_other_node",
    "tests/coordinator/core/store/test_connections.py",
    "tests/coordinator/core/store/test_steps.py",
    "tests/coordinator/core/test_broker.py",
    "tests/coordinator/core/worker/test_wakes.py",
)


# The dashboard in Flower, alone and in the applications of others.
DOORS = ("tests/coordinator/ops/dashboard/test_doors.py", "tests/coordinator/core/celery_patches")

# The app of Django, its tasks (`django.tasks`) and connections.
DJANGO = (
    "tests/coordinator/core/async_tasks",
    "tests/coordinator/django",
    "tests/coordinator/core/client/test_django.py",
    "tests/coordinator/core/test_threads.py",
    "tests/fleet/test_django.py",
)
BESIDE_DJANGO = ("django-celery-results", "httpx")
# django-celery-beat 2.9 takes no Django above 6.0.
WITHOUT_BEAT = (
    "--ignore=tests/coordinator/django/test_beat.py",
    "--ignore=tests/coordinator/django/test_periodic_tasks.py",
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
    Row("celery-5.6-kombu-5.7", "3.12", "5.6.3", "5.7.0", "8.1.0", "valkey-8.1"),
    Row("celery-5.7-redis-py-6", "3.11", "5.7.0", "5.7.0", "6.4.0", "valkey-9.0"),
    Row("celery-5.7", "3.14", "5.7.0", "5.7.0", "8.1.0", "valkey-9.1"),
    Row("celery-5.4-kombu-5.6", "3.11", "5.4.0", "5.6.2", "5.3.1", "redis-7.0", BROKER),
    Row("kombu-5.4-redis-py-5.3", "3.11", "5.4.0", "5.4.2", "5.3.1", "redis-7.0", BROKER),
    Row("kombu-5.4-redis-py-8.1", "3.11", "5.4.0", "5.4.2", "8.1.0", "redis-7.0", BROKER, forced=True),
    Row("kombu-5.5-redis-py-5.3", "3.11", "5.5.3", "5.5.4", "5.3.1", "redis-7.0", BROKER, ("PyJWT",), True),
    Row("kombu-5.5-redis-py-8.1", "3.11", "5.5.3", "5.5.4", "8.1.0", "redis-7.0", BROKER, forced=True),
    Row("kombu-5.6-redis-py-7.0", "3.11", "5.6.3", "5.6.2", "7.0.1", "redis-7.0", BROKER, forced=True),
    Row("kombu-5.6-redis-py-7.4", "3.11", "5.6.3", "5.6.2", "7.4.1", "redis-7.0", BROKER, forced=True),
    Row("kombu-5.6-redis-py-8.1", "3.11", "5.6.3", "5.6.2", "8.1.0", "redis-7.0", BROKER, forced=True),
    Row("flower-2.2", "3.11", "5.7.0", "5.7.0", "8.1.0", "redis-7.0", DOORS, ("flower==2.2.0", "httpx")),
    Row(
        "django-6.0",
        "3.12",
        "5.7.0",
        "5.7.0",
        "8.1.0",
        "redis-7.0",
        DJANGO,
        ("django==6.0.*", "django-celery-beat", *BESIDE_DJANGO),
    ),
    Row(
        "django-6.1",
        "3.12",
        "5.7.0",
        "5.7.0",
        "8.1.0",
        "redis-7.0",
        (*DJANGO, *WITHOUT_BEAT),
        ("django==6.1.*", *BESIDE_DJANGO),
    ),
    Row("kombu-5.7-redis-py-7.0", "3.11", "5.7.0", "5.7.0", "7.0.1", "redis-7.0", BROKER),
)
