"""The tables of django-celery-beat in a database of a test, and rows of them, as the admin and programs write them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connections
from django.test import modify_settings, override_settings

from tests.harness import djangos


class Router:
    """Reads go to a database that is not there, as to a replica that is down."""

    def __init__(self, alias: str) -> None:
        self._alias = alias

    def db_for_read(self, model: object, **_: object) -> str:
        return self._alias

    db_for_write = db_for_read


class Tables:
    def __init__(self, alias: str) -> None:
        from django_celery_beat import models

        self.alias, self.models = alias, models

    def create(self) -> None:
        kinds = "Interval", "Crontab", "Solar", "Clocked"
        made = [*(getattr(self.models, f"{kind}Schedule") for kind in kinds), *self.all_models()]
        with connections[self.alias].schema_editor() as editor:
            for model in made:
                editor.create_model(model)

    def all_models(self) -> list[Any]:
        return [self.models.PeriodicTask, self.models.PeriodicTasks]

    @property
    def rows(self) -> Any:
        return self.models.PeriodicTask.objects

    def row(self, name: str = "n") -> Any:
        return self.rows.get(name=name)

    def add(self, name: str = "n", every: float = 1, **given: Any) -> Any:
        """Save a row, by default of a keyed entry each second."""
        if not given.keys() & {"crontab", "solar", "clocked", "interval"}:
            given["interval"] = self.interval(every)
        for field in ("args", "kwargs", "headers"):
            if not isinstance(given.get(field, ""), str):
                given[field] = json.dumps(given[field])
        given = {"task": "sync", "headers": json.dumps({"coordinate": {"key": name}})} | given
        return self.rows.create(name=name, **given)

    def interval(self, every: float) -> Any:
        micros = round(every * 1e6)
        amount, period = (micros // 10**6, "seconds") if micros % 10**6 == 0 else (micros, "microseconds")
        return self.models.IntervalSchedule.objects.get_or_create(every=amount, period=period)[0]

    def crontab(self, minute: str = "*", zone: str = "UTC", **given: Any) -> Any:
        return self.models.CrontabSchedule.objects.create(minute=minute, timezone=ZoneInfo(zone), **given)

    def clocked(self, at: datetime) -> Any:
        return self.models.ClockedSchedule.objects.create(clocked_time=at)

    def solar(self, event: str = "sunset") -> Any:
        return self.models.SolarSchedule.objects.create(event=event, latitude="52.5", longitude="13.4")

    def silently(self, name: str = "n", **values: Any) -> None:
        """As a program does, without a signal: django-celery-beat does not hear of it."""
        assert self.rows.filter(name=name).update(**values)

    def write(self, said: str, *values: object) -> None:
        """As nobody should: Django does not hear of it."""
        with connections[self.alias].cursor() as cursor:
            cursor.execute(said, values)

    def once(self, name: str = "n") -> Any:
        """A row that is due at once, and not saved: django-celery-beat would note a change."""
        headers = json.dumps({"coordinate": {"key": name}})
        at = self.clocked(datetime.now(UTC))
        return self.models.PeriodicTask(name=name, task="sync", headers=headers, clocked=at, one_off=True)

    def sign(self) -> Any:
        return self.models.PeriodicTasks.objects.values_list("last_update", flat=True).first()

    def changed(self) -> None:
        self.models.PeriodicTasks.update_changed()

    def counted(self, name: str = "n") -> tuple[datetime | None, int]:
        row = self.row(name)
        return row.last_run_at and row.last_run_at.astimezone(UTC), row.total_run_count


@contextmanager
def tables(alias: str, **database: Any) -> Iterator[Tables]:
    """The tables in a database of this name, whatever databases the process' Django has."""
    djangos.set_up()
    connections.settings[alias] = connections.settings["default"] | database
    beat = modify_settings(INSTALLED_APPS={"append": "django_celery_beat"})
    with beat, override_settings(DATABASE_ROUTERS=[Router(alias)], USE_TZ=True):
        made = Tables(alias)
        made.create()
        try:
            yield made
        finally:
            connections[alias].close()
            del connections[alias], connections.settings[alias]
            site = import_module("django.contrib.admin").site
            for model in [one for one in site._registry if one._meta.app_label == "django_celery_beat"]:
                site.unregister(model)  # the app is there for these tests alone
