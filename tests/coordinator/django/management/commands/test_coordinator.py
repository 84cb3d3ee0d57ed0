"""`manage.py coordinator …` of a project as users write it."""

import json

from tests.coordinator.django.conftest import Shop


def test_settings_of_django_are_the_coordinators_and_the_command_finds_the_app(shop: Shop) -> None:
    done = shop.manage("coordinator", "settings", "--json")
    assert json.loads(done.stdout)["lock_ttl"] == {"value": 30.0, "from": "app.conf"}, done.stderr
    done = shop.manage("coordinator", "--settings=shop.settings", "nodes", "--json")
    assert json.loads(done.stdout)["nodes"] == []
    code = "from django.core.management import call_command; call_command('coordinator', 'nodes', '--json')"
    assert json.loads(shop.manage("shell", "-v0", "-c", code).stdout)["nodes"] == []


def test_the_command_has_its_own_help_errors_and_status(shop: Shop) -> None:
    done = shop.manage("coordinator", "--help")
    assert "Usage: manage.py coordinator [OPTIONS] COMMAND" in done.stdout
    assert "  doctor " in done.stdout
    done = shop.manage("coordinator", "job", "gone")
    assert (done.returncode, "under the id 'gone'" in done.stderr) == (2, True), done.stderr
