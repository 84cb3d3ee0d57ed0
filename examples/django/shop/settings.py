"""The settings of the shop."""

import os

import django

REDIS = os.environ.get("REDIS", "redis://localhost:6379")

SECRET_KEY = os.environ.get("SECRET_KEY", "example")
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "shop.urls"
STATIC_URL = "static/"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DATABASE", "shop.sqlite"),
        "ATOMIC_REQUESTS": True,
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    *(f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "sessions", "messages", "staticfiles")),
    *(["django_tasks"] if django.VERSION < (6, 0) else []),
    "django_celery_beat",
    "coordinator.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
CONTEXT = [
    "django.template.context_processors.request",
    "django.contrib.auth.context_processors.auth",
    "django.contrib.messages.context_processors.messages",
]
BACKEND = "django.template.backends.django.DjangoTemplates"
TEMPLATES = [{"BACKEND": BACKEND, "APP_DIRS": True, "OPTIONS": {"context_processors": CONTEXT}}]

CELERY_BROKER_URL = f"{REDIS}/1"
CELERY_BEAT_SCHEDULER = "coordinator.scheduler.Scheduler"
CELERY_COORDINATOR_URL = f"{REDIS}/0"
CELERY_COORDINATOR_QUOTA_UNKNOWN = "open"  # until somebody declares it: coordinator quota carrier --concurrency 2 …
TASKS = {"default": {"BACKEND": "coordinator.django.TaskBackend", "OPTIONS": {"outbox": True}}}
