"""The keyed tasks of a Django project, on a real worker: shared tasks, whose connections Celery's fixup closes."""

import json
import os
import subprocess
import sys

from tests.harness.fleet import ROOT, Fleet

CALLS = """
import json
from celery import chain
from tests.harness.apps import site

ways = {}
for how in ({}, {"coordinate": False}):
    calls = [site.look.apply_async((row,), **how) for row in (1, 1, 2)]
    calls.append(chain(site.read.s(site.Row(id=3)).set(**how), site.read.s(factor=2).set(**how)).apply_async())
    ways[str(len(how))] = [call.get(timeout=30) for call in calls]
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
    return site.look.delay(row).get(timeout=10)[2] == row

def by_the_errands(row):
    site.coordinator.pause(f"row/{row}", why="so that it ends without a runner")
    call = site.look.delay(row)
    site.coordinator.cancel(call.id, why="no runner tells its end")
    try:
        call.get(timeout=10)
    except TaskRevokedError:
        return True

ask(site_results.TABLE)
for round in range(3):
    print("results", by_the_outbox(round), by_the_errands(10 + round))
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
