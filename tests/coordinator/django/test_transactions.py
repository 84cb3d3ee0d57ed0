"""Tasks of Django that are enqueued inside transactions, in the test classes that Django's users have."""

from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client, TestCase, TransactionTestCase

from coordinator.testing.inline import InlineJobs
from tests.harness import djangos

djangos.set_up()

from coordinator.django.framework import TaskResultDoesNotExist  # noqa: E402  # Django wants its settings before


@pytest.fixture(scope="module", autouse=True)
def _tables() -> None:
    call_command("migrate", verbosity=0)


def test_with_an_outbox_the_transaction_itself_writes_the_job(app: Any, tasks: Any) -> None:
    from coordinator.django.outbox_row import OutboxRow

    app.coordinator.outbox()
    boxed = tasks.meaning.using(backend="boxed")
    with transaction.atomic():
        kept = boxed.enqueue()
        with transaction.atomic():
            boxed.enqueue()
            transaction.set_rollback(True)
    assert [row.job_id for row in OutboxRow.objects.all()] == [kept.id]
    with pytest.raises(TaskResultDoesNotExist):
        kept.refresh()
    OutboxRow.objects.all().delete()


def test_the_admin_shows_the_outbox_and_deletes_rows_and_makes_none(app: Any, tasks: Any) -> None:
    from django.contrib.auth.models import User

    from coordinator.django.outbox_row import OutboxRow

    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    assert "outboxrow" not in client.get("/admin/").content.decode(), "there is no outbox"
    app.coordinator.outbox()
    with transaction.atomic():
        kept = tasks.meaning.using(backend="boxed").enqueue()
    assert "outboxrow" in client.get("/admin/").content.decode()
    listed = "/admin/coordinator/outboxrow/"
    assert kept.id in client.get(listed).content.decode()
    assert client.get(f"{listed}add/").status_code == 403
    number = OutboxRow.objects.get().number
    assert client.post(f"{listed}{number}/delete/", {"post": "yes"}).status_code == 302
    assert not OutboxRow.objects.exists()
    User.objects.all().delete()


class Begun:
    """A test class of Django's takes our fixture by one of its own."""

    tasks: Any
    jobs: InlineJobs

    @pytest.fixture(autouse=True)
    def _begin(self, tasks: Any, jobs: InlineJobs) -> None:
        self.tasks, self.jobs = tasks, jobs


class InATestCase(Begun, TestCase):
    def test_an_enqueue_runs_at_once(self) -> None:
        result = self.tasks.meaning.enqueue()
        result.refresh()
        assert result.return_value == 42
        assert connection.in_atomic_block

    def test_on_commit_waits_until_the_test_plays_the_commit(self) -> None:
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            result = self.tasks.meaning.using(backend="later").enqueue()
            assert self.jobs.submitted == []
        assert len(callbacks) == 1
        result.refresh()
        assert result.return_value == 42

    def test_a_job_that_asks_the_database_leaves_the_tests_transaction_open(self) -> None:
        result = self.tasks.asks.enqueue(7)
        result.refresh()
        assert result.return_value[1:] == [True, 7]
        assert connection.in_atomic_block


class InATransactionTestCase(Begun, TransactionTestCase):
    def test_on_commit_enqueues_with_the_commit_and_never_after_a_rollback(self) -> None:
        later = self.tasks.meaning.using(backend="later")
        with transaction.atomic():
            result = later.enqueue()
            with pytest.raises(TaskResultDoesNotExist):
                result.refresh()
            assert self.jobs.submitted == []
        assert [job.id for job in self.jobs.submitted] == [result.id]
        with transaction.atomic():
            later.enqueue()
            transaction.set_rollback(True)
        with transaction.atomic():
            kept = later.enqueue()
            with transaction.atomic():
                later.enqueue()
                transaction.set_rollback(True)
        assert [job.id for job in self.jobs.submitted] == [result.id, kept.id]
        assert later.enqueue().id == self.jobs.submitted[-1].id, "outside a transaction at once"

    def test_without_it_a_task_is_enqueued_at_once_also_inside_a_transaction(self) -> None:
        with transaction.atomic():
            result = self.tasks.meaning.enqueue()
            assert [job.id for job in self.jobs.submitted] == [result.id]
            transaction.set_rollback(True)

    def test_atomic_requests_enqueue_when_the_request_is_done_and_not_when_it_failed(self) -> None:
        client = Client(raise_request_exception=False)
        assert client.get("/order/7/?status=500").status_code == 500
        assert self.jobs.submitted == []
        done = client.get("/order/7/")
        assert [(job.id, job.key, job.state) for job in self.jobs.submitted] == [
            (done.content.decode(), "order/7", "succeeded")
        ]
