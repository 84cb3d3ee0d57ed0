"""An app without the library. Its worker goes on with chains of tasks that it lacks."""

import os

from celery import Celery

app = Celery("stranger", broker=os.environ["TEST_BROKER"], backend=os.environ["TEST_BACKEND"])
app.conf.broker_transport_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}
app.conf.result_backend_transport_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}


@app.task(name="strange.double")
def double(x: int) -> int:
    return 2 * x
