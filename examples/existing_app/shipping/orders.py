"""What the shop calls for each order."""

from celery.result import AsyncResult

from .tasks import pack, ship


def place(number: int) -> list[AsyncResult]:
    return [pack.delay(number), ship.delay(number)]
