"""The same, with the list of calls that one job collects."""

from collections import Counter

from coordinator import Call
from examples.moving.shop import app
from examples.moving.work import work


@app.task(coordinate={"key": "clicks", "collect": {"how": "list", "idle": 10, "max_wait": 10, "most": 100}})
def count_clicks(calls: list[Call]) -> None:
    for url, clicks in Counter(str(call.kwargs["url"]) for call in calls).items():
        work(f"{url}: {clicks}")
