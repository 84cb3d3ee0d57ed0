"""The project's ASGI application, with the dashboard."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.harness.apps.project.settings")
site = get_asgi_application()

from coordinator.django import with_dashboard  # noqa: E402  # Django must be set up before

application = with_dashboard(site)
