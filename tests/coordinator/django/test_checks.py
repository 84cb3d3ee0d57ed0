"""What `manage.py check` says of a project as users write it."""

import json
from pathlib import Path

import pytest

from tests.coordinator.django.conftest import Shop

WRONG = """
@shared_task(bind=True, coordinate={"key": "order/{order}"})
def waits(self, order):
    return bill.delay(order).get()

@shared_task(coordinate={"key": "order/{number}"})
def odd(order): ...
"""


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("CELERY_COORDINATOR_LOCK_TLT = 3", "did you mean 'CELERY_COORDINATOR_LOCK_TTL'?"),
        ("CELERY_COORDINATOR_LOCK_TTL = 'long'", "setting lock_ttl (app.conf)"),
        ("COORDINATOR_LOCK_TTL = 3", "write CELERY_COORDINATOR_LOCK_TTL"),
        ("COORDINATOR_DASHBOARD_ULR = '/c/'", "did you mean 'COORDINATOR_DASHBOARD_URL'?"),
        ("TASKS['default']['ENQUEUE_ON_COMIT'] = True", "did you mean 'ENQUEUE_ON_COMMIT'?"),
        ("TASKS['default']['OPTIONS'] = {'key': 'so'}", "'key' in OPTIONS"),
        ("TASKS['default']['OPTIONS'] = {'outbx': True}", "did you mean 'outbox'?"),
        ("TASKS['default']['OPTIONS'] = {'outbox': True}", "write coordinator.outbox() below"),
    ],
)
def test_a_wrong_setting_is_named_by_check(shop: Shop, settings: str, told: str) -> None:
    shop.add("shop/settings.py", settings)
    done = shop.manage("check")
    assert (done.returncode, told in done.stderr) == (1, True), done.stderr


def test_a_project_without_the_app_of_django_is_told_so_at_the_enqueue(shop: Shop) -> None:
    shop.add("shop/settings.py", "INSTALLED_APPS.remove('coordinator.django')")
    done = shop.python("manage.py", "shell", "-v0", "-c", "from shop.tasks import ship; ship.enqueue(42)")
    assert done.stderr.endswith("ImproperlyConfigured: add 'coordinator.django' to INSTALLED_APPS\n"), done.stderr


def test_a_project_whose_app_is_not_found_is_told_the_way_out(shop: Shop, tmp_path: Path) -> None:
    shop.write("shop/__init__.py", "")
    (tmp_path / "shop/celery.py").rename(tmp_path / "jobs.py")
    for command in (("check",), ("coordinator", "nodes")):
        done = shop.manage(*command)
        assert (done.returncode > 0, "COORDINATOR_APP" in done.stderr) == (True, True), done.stderr
    assert shop.manage("check", COORDINATOR_APP="jobs").returncode == 0
    shop.write("jobs.py", "from celery import Celery; app = Celery('jobs')")
    assert "write coordinator = Coordinator(app)" in shop.manage("check", COORDINATOR_APP="jobs").stderr


def test_the_address_of_the_dashboard_is_a_setting_of_django_alone(shop: Shop) -> None:
    shop.add("shop/settings.py", "COORDINATOR_DASHBOARD_URL = 'https://ops.example.org/'")
    assert "no issues" in shop.manage("check").stdout
    code = "from shop.celery import coordinator; print(coordinator.settings.prefix)"
    assert shop.manage("shell", "-v0", "-c", code).returncode == 0


def test_a_project_that_does_not_import_its_celery_app_is_warned(shop: Shop) -> None:
    shop.write("shop/__init__.py", "")
    assert "from .celery import app as celery_app" in shop.manage("check").stderr


def test_a_wrong_key_is_told_by_check_and_not_only_before_a_deploy(shop: Shop) -> None:
    shop.add("shop/tasks.py", WRONG)
    assert "(coordinator.app.coordinate)" in shop.manage("check").stderr


def test_check_deploy_says_what_the_command_check_says(shop: Shop) -> None:
    shop.add("shop/tasks.py", WRONG)
    told = json.loads(shop.manage("coordinator", "check", "--json").stdout)["findings"]
    assert {one["code"] for one in told} >= {"app.get", "app.coordinate"}
    done = shop.manage("check", "--deploy")
    for one in told:
        assert f"(coordinator.{one['code']}) {one['thing']}: {one['message']}" in done.stderr
    assert "app.get" not in shop.manage("check").stderr
    shop.add("shop/settings.py", "SILENCED_SYSTEM_CHECKS = ['coordinator.app.coordinate']")
    assert "coordinator.app.coordinate" not in shop.manage("check", "--deploy").stderr
