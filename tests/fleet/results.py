"""The results of jobs, as Celery's own sets of them."""

from celery.result import AsyncResult, ResultSet

from coordinator.core.jobs.submission import Submission
from tests.harness.fleet import Fleet


def results_of(fleet: Fleet, told: list[Submission]) -> ResultSet:
    return ResultSet([AsyncResult(one.id, app=fleet.shop.app) for one in told], app=fleet.shop.app)
