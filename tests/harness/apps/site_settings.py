"""The settings of the Django project of the tests, whose app is tests/harness/apps/site.py."""

import os
from urllib.parse import urlsplit

SECRET_KEY = "of the tests"
_AT = urlsplit(os.environ["TEST_DATABASE"])  # a file of SQLite, or the address of a PostgreSQL
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": _AT.path, "CONN_MAX_AGE": None}
    if not _AT.netloc
    else {
        "ENGINE": "django.db.backends.postgresql", "NAME": _AT.path.strip("/"), "USER": _AT.username,
        "HOST": _AT.hostname, "PORT": _AT.port,
    }
}  # fmt: skip
INSTALLED_APPS = os.environ.get("TEST_APPS", "").split()
USE_TZ = True
