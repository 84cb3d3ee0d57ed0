"""The keyed tasks of a Django project, on a real worker: shared tasks, whose connections Celery's fixup closes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.harness.fleet import ROOT, Fleet
from tests.harness.postgres import PostgresServer
from tests.harness.proxy import Proxy
from tests.harness.waiting import wait_until

CALLS = """
import json
from celery import chain
from tests.harness.apps import site

ways = {}
for how in ({}, {"coordinate": False}):
    calls = [site.look.apply_async((row,), **how) for row in (1, 1, 2)]
    calls.append(chain(site.read.s(site.Row(id=3)).set(**how), site.read.s(factor=2).set(**how)).apply_async())
    ways[str(len(how))] = [call.get(timeout=60) for call in calls]
print(json.dumps(ways))
"""


def test_connections_are_closed_between_keyed_jobs_as_between_plain_tasks(fleet: Fleet) -> None:
    fleet.environ["TEST_DATABASE"] = str(fleet.directory / "site.sqlite")
    fleet.worker("one", 1, app="site")
    argv = [sys.executable, "-W", "ignore", "-c", CALLS]
    env = os.environ | fleet.environ
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=90)
    assert not done.returncode, f"{done.stderr}\n{fleet.logs()[-3000:]}"
    ways = json.loads(done.stdout.splitlines()[-1])
    assert ways["0"] == [["row/1", False, 1], ["row/1", False, 1], ["row/2", False, 2], {"id": 6}]
    assert ways["1"] == [[None, False, 1], [None, False, 1], [None, False, 2], {"id": 6}]


TOLD = """
from celery.exceptions import TaskRevokedError
from django.db import connection
from tests.harness.apps import site, site_results

def ask(said):
    with connection.cursor() as cursor:
        cursor.execute(said)

def by_the_outbox(row):
    return site.look.delay(row).get(timeout=60)[2] == row

def by_maintenance(row):
    site.coordinator.pause(f"row/{row}", why="so that it ends without a runner")
    call = site.look.delay(row)
    site.coordinator.cancel(call.id, why="no runner tells its end")
    try:
        call.get(timeout=60)
    except TaskRevokedError:
        return True

ask(site_results.TABLE)
for round in range(3):
    print("results", by_the_outbox(round), by_maintenance(10 + round))
    ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = user AND pid <> pg_backend_pid()")
"""


def test_results_in_its_database_come_after_the_server_has_closed_all_connections(fleet: Fleet, database: str) -> None:
    fleet.environ |= {
        "TEST_DATABASE": database,
        "TEST_BACKEND": "tests.harness.apps.site_results:SiteResults",
    }
    fleet.worker("one", 1, app="site")
    argv = [sys.executable, "-W", "ignore", "-c", TOLD]
    done = subprocess.run(argv, cwd=ROOT, env=os.environ | fleet.environ, capture_output=True, text=True, timeout=90)
    assert done.stdout.splitlines() == ["results True True"] * 3, f"{done.stderr}\n{fleet.logs()[-3000:]}"


TASKS = """
import json, time
import django
django.setup()
from django.core.management import call_command
from tests.harness.apps.project import tasks

def stored(result):
    from tests.harness.apps.project.celery import app
    return app.AsyncResult(result.id).get(timeout=60)

def ended(result):
    until = time.monotonic() + 60
    while not result.is_finished and time.monotonic() < until:
        time.sleep(0.02)
        result.refresh()
    return result

def told(result):
    ended(result)
    errors = [error.exception_class.__name__ for error in result.errors]
    return [result.status, result.attempts, len(result.worker_ids), errors, result._return_value]

"""


def tasks_of_django(fleet: Fleet, code: str, **more: str) -> Any:
    """Run code in a process of the project, as `manage.py shell` would; the JSON that it prints."""
    env = os.environ | fleet.environ | {"DJANGO_SETTINGS_MODULE": "tests.harness.apps.project.settings"}
    env |= more
    argv = [sys.executable, "-W", "ignore", "-c", f"{TASKS}\nprint(json.dumps({code}))"]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=90)
    assert not done.returncode, f"{done.stderr}\n{fleet.logs()[-3000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def test_tasks_of_django_run_on_a_node_and_survive_the_death_of_its_process(fleet: Fleet, tmp_path: Path) -> None:
    fleet.worker("one", 1, app="project")
    file = str(tmp_path / "died")
    code = (
        f"[told(one) for one in (tasks.dies_once.enqueue({file!r}), tasks.noop_async.enqueue(), tasks.fails.enqueue())]"
    )
    assert tasks_of_django(fleet, code) == [
        ["SUCCESSFUL", 2, 2, [], "second"],
        ["SUCCESSFUL", 1, 1, [], "async"],
        ["FAILED", 1, 1, ["Odd"], None],
    ]


def test_a_redis_that_is_away_before_the_body_costs_a_task_of_django_no_attempt(
    fleet: Fleet, proxy: Proxy, tmp_path: Path
) -> None:
    """Although it has only one: the body did not begin."""
    place = tmp_path / "hold"
    more = {"COORDINATOR_URL": proxy.url(0), "COORDINATOR_TIMEOUT": "0.5", "TEST_HOLD": str(place)}
    fleet.worker("one", 1, app="project", **more)
    task_id = tasks_of_django(fleet, "tasks.meaning.enqueue().id")
    wait_until(place.with_suffix(".here").exists)
    proxy.cut()
    place.with_suffix(".go").touch()
    wait_until(place.with_suffix(".over").exists)
    proxy.heal()
    status, *runs, errors, value = tasks_of_django(fleet, f"told(tasks.meaning.get_result({task_id!r}))")
    assert (status, errors, value) == ("SUCCESSFUL", [], 42)
    assert runs[0] == runs[1] >= 2, "on a busy machine another call may take longer than half a second"


def test_a_process_whose_postgresql_restarted_goes_on_with_the_next_job_and_its_result(fleet: Fleet) -> None:
    """Although the project keeps its connections: CONN_MAX_AGE is None. The results are django-celery-results'."""
    with PostgresServer() as server, server.database() as name:
        fleet.environ |= {"TEST_DATABASE": server.url(name), "TEST_APPS": "django_celery_results"}
        more = {"TEST_BACKEND": "django-db"}
        tasks_of_django(fleet, 'call_command("migrate", verbosity=0)')
        fleet.worker("one", 1, app="project", **more)
        asked = "[[told(one := tasks.asks.enqueue(number)), stored(one)] for number in ({}, {})]"
        first = tasks_of_django(fleet, asked.format(1, 2), **more)
        server.kill()
        server.start()
        ends = [*first, *tasks_of_django(fleet, asked.format(3, 4), **more)]
        values = [value for (*_, value), _ in ends]
        assert [one[2] for one in values] == [1, 2, 3, 4]
        assert [stored for _, stored in ends] == values
        assert len({pid for pid, *_ in values}) == 1, "the same process"
        assert {was_open for _, was_open, _ in values} == {False}
