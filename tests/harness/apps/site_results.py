"""A result backend in the database of a Django project, as that of django-celery-results: it takes the connection of
its thread as it finds it.
"""

from celery.backends.base import KeyValueStoreBackend
from django.db import connection

TABLE = "CREATE TABLE IF NOT EXISTS results (key text PRIMARY KEY, value text)"


class SiteResults(KeyValueStoreBackend):
    def get(self, key: str) -> str | None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT value FROM results WHERE key = %s", [_text(key)])
            row = cursor.fetchone()
            return row[0] if row else None

    def set(self, key: str, value: str) -> None:
        with connection.cursor() as cursor:
            said = "INSERT INTO results VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            cursor.execute(said, [_text(key), value])

    def mget(self, keys: list[str]) -> list[str | None]:
        return [self.get(key) for key in keys]

    def delete(self, key: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM results WHERE key = %s", [_text(key)])


def _text(key: str | bytes) -> str:
    return key.decode() if isinstance(key, bytes) else key
