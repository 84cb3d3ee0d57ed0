"""The rows of an outbox in a database of Django: the model of the app `coordinator.django`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from coordinator.core.client.on_commit import AnySession, django_on_commit
from coordinator.core.jobs.request import JobRequest
from coordinator.errors import SettingsError
from coordinator.outbox.rows import TABLE, Row, text_of

if TYPE_CHECKING:
    from django.db.models import QuerySet


class DjangoRows:
    """`using`: the name of the database; `app`: of the Celery app."""

    def __init__(self, using: str, app: str) -> None:
        self.using, self.app = using, app
        self.place = f"table {TABLE} of Django's database {using!r}"

    def write(self, request: JobRequest, session: AnySession | None, committed: Callable[[], None]) -> None:
        on_commit = django_on_commit()
        self._all.create(app=self.app, job_id=request.id, request=text_of(request), written=time.time())
        # Where the app ends transactions by hand, Django tells of no commit: the relay finds the row at its next look.
        with suppress(import_module("django.db.transaction").TransactionManagementError):
            on_commit(committed, using=self.using)

    def read(self, most: int) -> list[Row]:
        return [Row(*row) for row in self._mine.order_by("number").values_list(*Row._fields)[:most]]

    def delete(self, numbers: Sequence[int]) -> None:
        self._all.filter(number__in=numbers).delete()

    def note(self, numbers: Sequence[int], error: str) -> None:
        self._all.filter(number__in=numbers).update(error=error)

    def having(self, job_ids: Iterable[str]) -> set[str]:
        return set(self._mine.filter(job_id__in=list(job_ids)).values_list("job_id", flat=True))

    def of_job(self, job_id: str) -> Row | None:
        found = self._mine.filter(job_id=job_id).values_list(*Row._fields).first()
        return found and Row(*found)

    @property
    def _mine(self) -> QuerySet:
        return self._all.filter(app=self.app)

    @property
    def _all(self) -> QuerySet:
        apps = import_module("django.apps").apps
        try:
            if not apps.ready:
                import_module("django").setup()
            model = apps.get_model("coordinator", "OutboxRow")
        except (LookupError, import_module("django.core.exceptions").ImproperlyConfigured) as error:
            way = "Django's settings, 'coordinator.django' in INSTALLED_APPS, and manage.py migrate"
            raise SettingsError(f"an outbox wants {way}: {error}") from error
        return model.objects.using(self.using)
