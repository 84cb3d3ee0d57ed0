"""The settings of the project; the environment says where its servers are."""

import os
from urllib.parse import urlsplit

from django import VERSION

SECRET_KEY = "of the tests, and long enough for the check --deploy of Django"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
ROOT_URLCONF = "tests.harness.apps.project.urls"
USE_TZ = True
_AT = urlsplit(os.environ.get("TEST_DATABASE", ""))  # the address of a PostgreSQL, a file of SQLite, or nothing
DATABASES: dict[str, dict[str, object]] = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": _AT.path or ":memory:", "ATOMIC_REQUESTS": True}
    if not _AT.netloc
    else {
        "ENGINE": "django.db.backends.postgresql", "NAME": _AT.path.strip("/"), "USER": _AT.username,
        "HOST": _AT.hostname, "PORT": _AT.port, "CONN_MAX_AGE": None,
    }
}  # fmt: skip
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    *(f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "sessions", "messages")),
    "coordinator.django",
    "tests.harness.apps.project",
    *(["django_tasks"] if VERSION < (6, 0) else []),
    *filter(None, os.environ.get("TEST_APPS", "").split()),
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                f"django.{name}"
                for name in (
                    "template.context_processors.request",
                    "contrib.auth.context_processors.auth",
                    "contrib.messages.context_processors.messages",
                )
            ]
        },
    }
]
TASKS = {
    "default": {"BACKEND": "coordinator.django.TaskBackend", "QUEUES": ["default", "mail"]},
    "any": {"BACKEND": "coordinator.django.TaskBackend", "QUEUES": []},
    "immediate": {
        "BACKEND": f"{'django_tasks' if VERSION < (6, 0) else 'django.tasks'}.backends.immediate.ImmediateBackend"
    },
    "later": {"BACKEND": "coordinator.django.TaskBackend", "QUEUES": [], "ENQUEUE_ON_COMMIT": True},
    "boxed": {"BACKEND": "coordinator.django.TaskBackend", "QUEUES": [], "OPTIONS": {"outbox": True}},
}

CELERY_BROKER_URL = os.environ.get("TEST_BROKER", "memory://")
CELERY_RESULT_BACKEND = os.environ.get("TEST_BACKEND")
if prefix := os.environ.get("TEST_PREFIX"):
    CELERY_BROKER_TRANSPORT_OPTIONS = {"global_keyprefix": f"{prefix}."}
    CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS = {"global_keyprefix": f"{prefix}."}
