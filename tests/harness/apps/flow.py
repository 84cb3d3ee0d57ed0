"""Further tasks of the app `shop`, which use quotas; a worker loads them with `-I`."""

from functools import partial

from coordinator import current_job
from tests.harness.apps.shop import _log, app, stamp, work

task = partial(app.task, shared=False)


@task(coordinate={"uses": "api/{tenant}"})
def call(tenant: str, name: str) -> str:
    """It stands in no lane."""
    return str(work(name))


@task(coordinate={"key": "page/{page}", "uses": {"converter": 1}})
def convert(page: str, name: str, seconds: float = 0.0) -> str:
    return str(work(name, seconds))


@task(rate_limit="20/s")
def limited(name: str) -> str:
    return str(work(name))


@task(coordinate={"uses": ["api/{tenant}"], "max_attempts": 1})
def polite(tenant: str, name: str, refusals: int) -> int:
    """Calls a service that says 429 so many times. Returns how often it was called."""
    stamp(name, "begin")
    calls = int(_log.incr(f"{name}.calls"))
    if calls <= refusals:
        job = current_job()
        assert job
        job.cool_down(0.3)
    return calls
