"""The permissions of the dashboard, in a model without a table."""

from typing import ClassVar

from django.db import migrations, models

_KEY = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")
_OPTIONS = {
    "verbose_name": "dashboard",
    "verbose_name_plural": "dashboard",
    "managed": False,
    "default_permissions": ("view", "operate"),
}


class Migration(migrations.Migration):
    initial = True
    operations: ClassVar = [migrations.CreateModel(name="Dashboard", fields=[("id", _KEY)], options=_OPTIONS)]
