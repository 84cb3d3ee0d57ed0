"""examples/django as a user runs it: migrate, worker, two beats, gunicorn, an order, the admin in a browser; tests."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page

from coordinator.local.redis import free_port
from tests.harness.browser import chromium
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import ROOT, python, start

SHOP = ROOT / "examples" / "django"
MAKE_USER = """
from django.contrib.auth.models import User
from django_celery_beat.models import IntervalSchedule
User.objects.create_superuser('ulla', password='right')
IntervalSchedule.objects.create(every=1, period='seconds')
"""


@contextmanager
def running(argv: list[str], env: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("ab") as out, start(argv, SHOP, env, stdout=out, stderr=out) as process:
        try:
            yield
            process.terminate()
            process.wait(60)
        finally:
            process.kill()


@dataclass
class Shop:
    """The shop, its processes, and what they wrote. `address`: of its site."""

    env: dict[str, str]
    log: Path
    address: str

    def manage(self, *argv: str) -> str:
        done = python(["manage.py", *argv], SHOP, self.env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def said(self) -> str:
        return self.log.read_text()[-3000:]


@pytest.fixture
def shop(own_redis: RedisServer, tmp_path: Path) -> Iterator[Shop]:
    env = os.environ | {"REDIS": own_redis.url(0).removesuffix("/0"), "DATABASE": str(tmp_path / "shop.sqlite")}
    env |= {"PYTHONPATH": f"{ROOT}:{SHOP}", "DJANGO_SETTINGS_MODULE": "shop.settings"}
    port = free_port()
    made = Shop(env, tmp_path / "log", f"http://127.0.0.1:{port}")
    made.manage("migrate", "-v0")
    made.manage("makemigrations", "--check", "--dry-run")
    made.manage("shell", "-v0", "-c", MAKE_USER)
    beat = ["-m", "celery", "-A", "shop", "beat", "--pidfile=", "-s", str(tmp_path / "schedule")]
    site = ["-m", "gunicorn", "shop.asgi:application", "-k", "asgi", "-b", f"127.0.0.1:{port}", "--no-control-socket"]
    site += ["--graceful-timeout", "3"]  # as long it waits for a page that is open
    with ExitStack() as stack:
        for argv in (["-m", "celery", "-A", "shop", "worker", "-c", "1"], beat, beat, site):
            stack.enter_context(running(argv, env, made.log))
        wait_until(lambda: _answers(made.address), what=made.said)
        yield made


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/orders/1/", timeout=60).status_code == 404
    except httpx.TransportError:
        return False


def log_in(page: Page) -> None:
    page.goto("/admin/")
    page.fill("[name=username]", "ulla")
    page.fill("[name=password]", "right")
    page.click("[type=submit]")


def test_an_order_is_shipped_and_the_admin_steers_what_is_periodic(shop: Shop) -> None:
    with httpx.Client(base_url=shop.address, timeout=60) as client:
        assert client.post("/orders/42/").status_code == 201
        wait_until(lambda: client.get("/orders/42/").text == "order 42 is on its way", what=shop.said)
        assert client.get("/coordinator/").status_code == 401
    shop.manage("shell", "-v0", "-c", "from shop.models import Order; Order.objects.create(number=1)")
    with chromium() as browser:
        page = browser.new_page(base_url=shop.address)
        log_in(page)
        page.goto("/admin/django_celery_beat/periodictask/add/")
        page.fill("[name=name]", "remind")
        page.fill("[name=task]", "shop.tasks.remind")
        page.select_option("[name=interval]", index=1)
        page.click("[name=_save]")
        page.goto("/admin/")
        page.get_by_role("link", name="Dashboard", exact=True).first.click()
        assert page.url.endswith("/coordinator/")
        page.goto("/coordinator/schedule")
        page.get_by_text("shop.tasks.remind").first.wait_for()
    asked = "from shop.models import Order; print(Order.objects.get(number=1).reminders)"
    wait_until(lambda: int(shop.manage("shell", "-v0", "-c", asked)) > 0, what=shop.said)
    assert "order/42" in shop.manage("coordinator", "jobs", "--json")


def test_the_tests_of_the_shop_pass() -> None:
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{SHOP}", "REDIS": "redis://127.0.0.1:1"}  # where nobody is
    done = python(["manage.py", "test"], SHOP, env)
    assert (done.returncode, "Ran 2 tests" in done.stderr) == (0, True), done.stderr
