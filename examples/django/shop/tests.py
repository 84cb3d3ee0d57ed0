"""Tests of the shop: `python manage.py test`. They need a redis-server or the extra `embedded`, and no worker."""

from django.db import IntegrityError
from django.test import TestCase

from coordinator.testing import inline_jobs
from shop.celery import coordinator
from shop.models import Order


class OrderTests(TestCase):
    def setUp(self) -> None:
        self.jobs = self.enterContext(inline_jobs(coordinator))

    def test_an_order_is_billed_and_then_shipped(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            self.client.post("/orders/42/")
        assert Order.objects.get(number=42).paid
        assert self.client.get("/orders/42/").content == b"order 42 is on its way"
        assert [job.key for job in self.jobs.submitted] == ["order/42", "order/42"]

    def test_nothing_is_done_for_an_order_that_fails(self) -> None:
        Order.objects.create(number=42)
        with self.assertRaises(IntegrityError), self.captureOnCommitCallbacks(execute=True):  # noqa: PT027
            self.client.post("/orders/42/")
        assert self.jobs.submitted == []
