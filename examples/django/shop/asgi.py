"""The site: the shop, and the dashboard at /coordinator/ for users with its permission."""

import os

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
site = ASGIStaticFilesHandler(get_asgi_application())  # elsewhere a web server has the admin's style sheets

from coordinator.django import with_dashboard  # noqa: E402  # Django must be set up before

application = with_dashboard(site)
