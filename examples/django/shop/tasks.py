"""What the shop does in the background: one at a time for each order, in the order of the calls."""

from celery import shared_task
from django import VERSION
from django.db.models import F

from coordinator.django import coordinate
from shop.models import Order

if VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task


@shared_task(coordinate={"key": "order/{number}"})
def bill(number: int) -> None:
    """A keyed task of Celery."""
    Order.objects.filter(number=number).update(paid=True)


@shared_task(coordinate={"key": "reminders"})
def remind() -> None:
    """Sent by a periodic task that somebody makes in the admin."""
    Order.objects.filter(paid=False).update(reminders=F("reminders") + 1)


@task
@coordinate(key="order/{number}", uses="carrier", max_attempts=3)
def ship(number: int) -> str:
    """A keyed task of Django. The carrier takes only so many calls at a time: a quota."""
    if not Order.objects.get(number=number).paid:
        raise ValueError(f"order {number} is not paid")
    return f"order {number} is on its way"
