"""The table of an outbox, as a model: `coordinator/outbox` says what is in a row."""

from __future__ import annotations

from django.db import models


class OutboxRow(models.Model):
    number = models.BigAutoField(primary_key=True)
    app = models.TextField()
    job_id = models.TextField()
    request = models.TextField()
    written = models.FloatField()
    error = models.TextField(default="", blank=True)

    class Meta:
        app_label = "coordinator"
        db_table = "coordinator_outbox"
        verbose_name = "job in the outbox"
        verbose_name_plural = "jobs in the outbox"

    def __str__(self) -> str:
        return f"job {self.job_id}"
