"""The table of orders."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations: ClassVar = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("number", models.PositiveIntegerField(primary_key=True, serialize=False)),
                ("paid", models.BooleanField(default=False)),
                ("reminders", models.PositiveIntegerField(default=0)),
                ("shipping", models.CharField(default="", max_length=64)),
            ],
        )
    ]
