"""Who may use the dashboard: a model without a table, which has the permissions and stands in the admin's index."""

from __future__ import annotations

from django.db import models


class Dashboard(models.Model):
    class Meta:
        app_label = "coordinator"
        managed = False
        default_permissions = ("view", "operate")
        verbose_name = verbose_name_plural = "dashboard"
