"""The settings of the Django project of the tests, whose app is tests/harness/apps/site.py."""

import os

SECRET_KEY = "of the tests"
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["TEST_DATABASE"], "CONN_MAX_AGE": None}
}
INSTALLED_APPS: list[str] = []
USE_TZ = True
