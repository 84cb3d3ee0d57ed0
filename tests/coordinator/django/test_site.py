"""The dashboard in a Django site: below a path of its ASGI application, with Django's users; its link in the admin."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import RequestFactory, override_settings

from coordinator.django import with_dashboard
from coordinator.local.redis import free_port
from tests.harness.redis import RedisServer
from tests.harness.warm import ROOT

USERS = """
import django
django.setup()
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
call_command("migrate", verbosity=0)
password = make_password("lake")
about = {"ann": ("superuser",), "bob": ("view",), "cat": ("operate",), "eve": (), "old": ("view", "operate")}
for name, acts in about.items():
    is_root = "superuser" in acts
    user = User(username=name, password=password, is_staff=True, is_superuser=is_root, is_active=name != "old")
    user.save()
    user.user_permissions.set(Permission.objects.filter(codename__in=[f"{act}_dashboard" for act in acts]))
"""


@pytest.fixture(scope="module")
def site(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the project's site. In a process of its own, since its database is used by many threads."""
    port = free_port()
    env = {"COORDINATOR_URL": redis_server.url(0), "COORDINATOR_PREFIX": redis_server.fresh_prefix(), "PATH": ""}
    env |= {"DJANGO_SETTINGS_MODULE": "tests.harness.apps.project.settings"}
    env |= {"TEST_DATABASE": str(tmp_path_factory.mktemp("site") / "db.sqlite")}
    subprocess.run([sys.executable, "-c", USERS], env=env, cwd=ROOT, check=True)
    argv = [sys.executable, "-m", "uvicorn", "tests.harness.apps.project.asgi:application", "--port", str(port)]
    with subprocess.Popen(argv, env=env, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        next(line for line in process.stderr if "running on" in line)
        yield f"http://127.0.0.1:{port}"
        process.terminate()


@contextmanager
def browser(site: str, name: str) -> Iterator[httpx.Client]:
    """Of a user who has logged in at the admin."""
    with httpx.Client(base_url=site, follow_redirects=True, timeout=60) as client:
        if name:
            client.get("/admin/login/")
            form = {"username": name, "password": "lake", "csrfmiddlewaretoken": client.cookies["csrftoken"]}
            client.post("/admin/login/", data=form, headers={"Referer": f"{site}/admin/"})
        yield client


@pytest.mark.parametrize(
    ("name", "status", "acts"),
    [("", 401, False), ("eve", 403, False), ("old", 401, False), ("bob", 200, False), ("cat", 200, True),
     ("ann", 200, True)],
)  # fmt: skip
def test_permissions_of_django_are_the_roles_of_the_dashboard(site: str, name: str, status: int, acts: bool) -> None:
    with browser(site, name) as client:
        page = client.get("/coordinator/lane?key=a")
        assert (page.status_code, "Pause" in page.text) == (status, acts)
        assert (f">{name}</span>" in page.text) is (status == 200)
        assert client.get("/coordinators/").status_code == 404


def test_who_is_not_logged_in_comes_to_the_dashboard_by_the_login_of_the_site(site: str) -> None:
    with browser(site, "") as client:
        page = client.get("/coordinator/lane?key=a", headers={"Accept": "text/html"})
        assert page.url.path == "/admin/login/"
        form = {"username": "bob", "password": "lake", "csrfmiddlewaretoken": client.cookies["csrftoken"]}
        inside = client.post(str(page.url), data=form, headers={"Referer": f"{site}/admin/"})
        assert (inside.status_code, str(inside.url)) == (200, f"{site}/coordinator/lane?key=a")
    with browser(site, "eve") as client:
        assert "eve lacks the permission 'Can view dashboard'" in client.get("/coordinator/").text


def test_an_application_of_wsgi_is_refused() -> None:
    from django.core.wsgi import get_wsgi_application

    with pytest.raises(ImproperlyConfigured, match="get_asgi_application"):
        with_dashboard(get_wsgi_application())


@pytest.mark.parametrize(("name", "seen"), [("eve", False), ("bob", True), ("cat", True)])
def test_the_admin_has_a_link_for_those_who_may_look(site: str, name: str, seen: bool) -> None:
    with browser(site, name) as client:
        assert ('href="/admin/coordinator/dashboard/"' in client.get("/admin/").text) is seen
        page = client.get("/admin/coordinator/dashboard/")
        assert (page.status_code, page.url.path) == ((200, "/coordinator/") if seen else (403, "/coordinator/"))
        assert client.get("/admin/coordinator/dashboard/add/").status_code == 404


def test_a_site_without_the_dashboard_links_to_the_address_in_its_settings(app: Any) -> None:
    from django.contrib import admin

    from coordinator.django.permissions import Dashboard

    link = admin.site.get_model_admin(Dashboard)
    asked = RequestFactory().get("/admin/coordinator/dashboard/")
    assert not link.has_module_permission(asked), "nothing to link to"
    with override_settings(COORDINATOR_DASHBOARD_URL="https://ops.example.org/"):
        assert link.has_module_permission(asked)
        assert link.changelist_view(asked).url == "https://ops.example.org/"
