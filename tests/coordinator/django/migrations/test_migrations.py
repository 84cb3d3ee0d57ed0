"""The migrations of the app, and what they bring."""

from django.core.management import call_command
from django.db import connection

from tests.harness import djangos

djangos.set_up()

from django.contrib.auth.models import Permission  # noqa: E402  # Django wants its settings before


def test_the_models_are_as_the_migrations_make_them() -> None:
    call_command("makemigrations", "coordinator", check=True, dry_run=True, verbosity=0)


def test_the_dashboard_has_permissions_and_no_table() -> None:
    call_command("migrate", verbosity=0)
    found = Permission.objects.filter(content_type__app_label="coordinator", content_type__model="dashboard")
    assert {one.codename: one.name for one in found} == {
        "view_dashboard": "Can view dashboard",
        "operate_dashboard": "Can operate dashboard",
    }
    assert "coordinator_dashboard" not in connection.introspection.table_names()
