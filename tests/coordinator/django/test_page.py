"""docs/django.md: its project works as it stands there, and its other blocks say what is so."""

from tests.coordinator.django.conftest import PAGE, Shop
from tests.harness.snippets import assert_shown

DJANGO = "import os, django\nos.environ['DJANGO_SETTINGS_MODULE'] = 'shop.settings'\ndjango.setup()"


def test_the_blocks_of_the_page_run_in_its_project(shop: Shop) -> None:
    assert shop.manage("migrate", "-v0").returncode == 0
    assert "no issues" in shop.manage("check").stdout
    [code] = [block for block in PAGE if block.language == "python" and not block.title]
    done = shop.manage("shell", "-v0", "-c", code.text)
    expected = [line.partition("  # ")[2] for line in code.text.splitlines() if "print(" in line]
    assert_shown(done.stdout, expected, str(code))
    assert done.returncode == 0


def test_a_task_is_enqueued_where_nobody_imported_the_celery_app(shop: Shop) -> None:
    shop.write("shop/__init__.py", "")
    code = f"{DJANGO}\nfrom shop.tasks import ship\nprint(ship.enqueue(42).status)"
    assert shop.python("-c", code).stdout == "READY\n"


def test_its_site_and_its_tests_run(shop: Shop) -> None:
    shop.manage("migrate", "-v0")
    shop.add("shop/asgi.py", "print(application.__module__)")
    assert shop.python("-c", "import shop.asgi").stdout == "coordinator.django.site\n"
    done = shop.manage("test", COORDINATOR_URL="redis://127.0.0.1:1")
    assert (done.returncode, "Ran 2 tests" in done.stderr) == (0, True), done.stderr
