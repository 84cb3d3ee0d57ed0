"""`inline_jobs`: the jobs of a test class run in its thread, under any runner."""

import subprocess
import sys
import unittest

from celery import Celery

from coordinator import Coordinator
from coordinator.testing import inline_jobs

app = Celery("cases", broker="redis://127.0.0.1:1/0", backend="redis://127.0.0.1:1/0", set_as_current=False)
coordinator = Coordinator(app)

NO_PYTEST = """
import sys
sys.modules["pytest"] = None
from celery import Celery
from coordinator import Coordinator
from coordinator.testing import inline_jobs
app = Celery("shop", broker="memory://")
coordinator = Coordinator(app, url="redis://127.0.0.1:1/0")

@app.task
def add(a, b):
    return a + b

with inline_jobs(coordinator) as jobs:
    print(coordinator.submit("k", add.s(1, 2)).get(), len(jobs.submitted))
"""


@app.task
def add(one: int, other: int) -> int:
    return one + other


def test_jobs_run_in_the_thread_until_the_block_ends_and_then_all_is_as_before() -> None:
    assert coordinator.settings.prefix == "coord"  # it keeps its settings once they are read
    before = dict(vars(coordinator))
    for _ in range(2):
        with inline_jobs(coordinator) as jobs:
            assert coordinator.submit("k", add.s(1, 2)).get() == 3
            assert [job.key for job in jobs.submitted] == ["k"]
        assert dict(vars(coordinator)) == before


def test_a_test_class_enters_it() -> None:
    class Adding(unittest.TestCase):
        def setUp(self) -> None:
            self.jobs = self.enterContext(inline_jobs(coordinator))

        def test_add(self) -> None:
            assert coordinator.submit("k", add.s(1, 2)).get() == 3

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Adding).run(result)
    assert (result.testsRun, result.errors, result.failures) == (1, [], [])


def test_it_needs_no_pytest() -> None:
    done = subprocess.run([sys.executable, "-c", NO_PYTEST], capture_output=True, text=True, timeout=60)
    assert done.stdout == "3 1\n", done.stderr
