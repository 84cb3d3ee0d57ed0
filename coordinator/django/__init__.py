"""The coordinator as an app of Django: `"coordinator.django"` in INSTALLED_APPS. docs/django.md describes it.

TaskBackend      a backend of Django's tasks: TASKS = {"default": {"BACKEND": "coordinator.django.TaskBackend"}}
coordinate       a decorator below `@task`: the keys, quotas and other options of the task's jobs
with_dashboard   puts the dashboard below a path of the site's ASGI application

`coordinator.django.beat` reads django-celery-beat's tables.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.django.backend import TaskBackend as TaskBackend
    from coordinator.django.declared import coordinate as coordinate
    from coordinator.django.site import with_dashboard as with_dashboard

_HOME_OF = {"TaskBackend": "backend", "coordinate": "declared", "with_dashboard": "site"}


def __getattr__(name: str) -> object:
    """Import a public name at its first use: a site may lack Django's tasks (5.2), or what the dashboard needs."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
