"""The orders of the shop."""

from django.db import models


class Order(models.Model):
    number = models.PositiveIntegerField(primary_key=True)
    paid = models.BooleanField(default=False)
    reminders = models.PositiveIntegerField(default=0)
    shipping = models.CharField(max_length=64, default="")  # the id of the task that ships it

    def __str__(self) -> str:
        return f"order {self.number}"
