"""The table of an outbox."""

from typing import ClassVar

from django.db import migrations, models

_FIELDS = [
    ("number", models.BigAutoField(primary_key=True, serialize=False)),
    ("app", models.TextField()),
    ("job_id", models.TextField()),
    ("request", models.TextField()),
    ("written", models.FloatField()),
    ("error", models.TextField(blank=True, default="")),
]
_OPTIONS = {
    "verbose_name": "job in the outbox",
    "verbose_name_plural": "jobs in the outbox",
    "db_table": "coordinator_outbox",
}


class Migration(migrations.Migration):
    dependencies: ClassVar = [("coordinator", "0001_dashboard")]
    operations: ClassVar = [migrations.CreateModel(name="OutboxRow", fields=_FIELDS, options=_OPTIONS)]
