"""A Celery app of the tests whose tasks are keyed: with TEST_PLAIN, the same app without the library."""

import os
import time
from typing import Any

from celery import Celery, chain, group
from celery.app.task import Task
from celery.result import allow_join_result
from pydantic import BaseModel

from coordinator import Coordinator, KeyedTaskOptions, current_job
from tests.harness.apps.stamps import opened, stamps_in

app = Celery("keyed", broker=os.environ["TEST_BROKER"], backend=os.environ["TEST_BACKEND"])
app.conf.broker_transport_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}
app.conf.result_backend_transport_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}
app.conf.worker_hijack_root_logger = False
app.conf.result_extended = True
app.conf.task_annotations = {"keyed.annotated": {"coordinate": {"key": "lane/{lane}"}}}
if serializer := os.environ.get("TEST_SERIALIZER"):
    app.conf.update(task_serializer=serializer, result_serializer=serializer, accept_content=[serializer])
if not os.environ.get("TEST_PLAIN"):
    coordinator = Coordinator(app)

_log = opened()
stamp = stamps_in(_log)


def _wait_for(name: str) -> None:
    key = f"{os.environ['TEST_PREFIX']}.go.{name}"
    while not _log.exists(key):
        time.sleep(0.01)


def _unless_bad(name: str) -> str:
    if "bad" in name:
        raise ValueError(name)
    return name


QUEUE: KeyedTaskOptions = {"key": "lane/{lane}"}


@app.task(name="keyed.add", coordinate=QUEUE)
def add(x: int, y: int, lane: str = "usual") -> int:
    """Sums: in a chain, the result before it is `x`."""
    stamp(f"add/{lane}", "begin")
    time.sleep(0.02)
    stamp(f"add/{lane}", "end")
    return x + y


@app.task(name="keyed.held", coordinate=QUEUE)
def held(name: str, lane: str = "usual") -> str:
    """Runs until the test lets it go."""
    stamp(name, "begin")
    _wait_for(name)
    stamp(name, "end")
    return name


@app.task(name="keyed.once", coordinate={"key": "lane/{lane}", "when_busy": "skip"})
def once(name: str, lane: str = "usual") -> str:
    stamp(name, "begin")
    _wait_for(name)
    return _unless_bad(name)


@app.task(name="keyed.strict", coordinate={"key": "lane/{lane}", "when_busy": "skip", "on_skip": "raise"})
def strict(lane: str = "usual") -> str:
    return "done"


@app.task(name="keyed.newest", coordinate={"key": "lane/{lane}", "when_busy": "replace"})
def newest(name: str, lane: str = "usual") -> str:
    stamp(name, "begin")
    _wait_for(name)
    return name


@app.task(name="keyed.late", coordinate={"key": "lane/{lane}", "when_busy": "defer"})
def late(name: str, lane: str = "usual") -> str:
    stamp(name, "begin")
    return _unless_bad(name)


@app.task(name="keyed.fail", coordinate=QUEUE)
def fail(text: Any = "no", lane: str = "usual") -> None:
    stamp("fail", "begin")
    raise ValueError(text)


@app.task(name="keyed.failing", coordinate=QUEUE)
def failing(text: str, lane: str = "usual") -> None:
    stamp(text, "begin")
    _wait_for(text)
    raise ValueError(text)


@app.task(name="keyed.nothing", coordinate=QUEUE)
def nothing(lane: str = "usual") -> None:
    """Gives nothing that could be in a key."""


@app.task(name="keyed.rent", bind=True, coordinate={"key": "{headers[tenant]}/rent"})
def rent(self: Task, again: bool = False, tenant: str = "") -> str:
    if again and not self.request.retries:
        raise self.retry(countdown=0, **({"headers": {"tenant": tenant}} if tenant else {}))
    return str(self.request.headers["tenant"])


@app.task(name="keyed.tell")
def tell(value: Any) -> Any:
    return value


@app.task(bind=True, name="keyed.again", coordinate=QUEUE, max_retries=3)
def again(self: Task, x: int, lane: str = "usual") -> int:
    """Fails twice, and retries itself at once."""
    stamp("again", "begin")
    tries = self.request.retries
    while tries and not current_job() and _told(self) != f"try {tries}":
        time.sleep(0.01)
    if tries < 2:
        raise self.retry(countdown=0, exc=ValueError(f"try {tries + 1}"))
    return x


def _told(task: Task) -> str:
    """What the backend was told last. Celery publishes a retry before it stores RETRY, and would store that over the
    SUCCESS of a quicker one.
    """
    return str(task.backend.get_task_meta(task.request.id)["result"])


@app.task(bind=True, name="keyed.about", coordinate=QUEUE)
def about(self: Task, *_: Any, lane: str = "usual") -> dict[str, Any]:
    """What its request says."""
    names = ("id", "root_id", "parent_id", "group", "reply_to", "stamps", "headers", "retries")
    return {name: getattr(self.request, name) for name in names}


@app.task(name="keyed.both", coordinate={"key": ["lane/{x}", "lane/{y}"]})
def both(x: int, y: int) -> list[str]:
    job = current_job()
    return list(job.keys) if job else []


@app.task(name="keyed.both_once", coordinate={"key": ["lane/{x}", "lane/{y}"], "when_busy": "skip"})
def both_once(x: str, y: str) -> str:
    return f"{x} {y}"


@app.task(
    name="keyed.pooled",
    coordinate={"key": ["lane/{lane}", "item/{name}"], "when_busy": {"lane/{lane}": "queue", "item/{name}": "skip"}},
)
def pooled(name: str, lane: str = "pool") -> str:
    return name


@app.task(name="keyed.annotated")
def annotated(lane: str = "usual") -> list[str]:
    job = current_job()
    return list(job.keys) if job else []


class Order(BaseModel):
    id: int
    name: str


@app.task(name="keyed.modelled", pydantic=True, coordinate={"key": "order/{order[id]}"})
def modelled(order: Order) -> str:
    return order.name


class Counting(Task):
    """A base class with an `apply_async` of its own."""

    abstract = True
    coordinate = QUEUE
    called = 0

    def apply_async(self, *args: Any, **options: Any) -> Any:
        type(self).called += 1
        return super().apply_async(*args, **options)


@app.task(base=Counting, bind=True, name="keyed.counted")
def counted(self: Task, lane: str = "usual") -> list[str]:
    job = current_job()
    return list(job.keys) if job else []


@app.task(name="keyed.total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(name="keyed.sum", coordinate=QUEUE)
def sum_up(numbers: list[int], lane: str = "usual") -> int:
    return sum(numbers)


@app.task(name="keyed.plain")
def plain(x: int, y: int = 0) -> int:
    stamp("plain", "begin")
    return x + y


@app.task(bind=True, name="keyed.swapped", coordinate=QUEUE)
def swapped(self: Task, x: int, lane: str = "swapped") -> int:
    """A task in another lane takes its place, or one past its lane where it is past its own."""
    found: int = self.replace(add.s(x, 1, lane="child").set(coordinate=current_job() is not None))
    return found


@app.task(bind=True, name="keyed.parent", coordinate=QUEUE)
def parent(self: Task, lane: str = "parent") -> str:
    """Its calls are its children."""
    add.delay(1, 2, lane="child")
    return "parent"


@app.task(name="keyed.note")
def note(*args: Any) -> None:
    stamp(f"note/{args[0] if args else ''}", "begin")


@app.task(bind=True, name="keyed.page", coordinate=QUEUE)
def page(self: Task, number: int, last: int, lane: str = "pages") -> int:
    """Goes on with the next page."""
    stamp(f"page/{number}", "begin")
    if number < last:
        self.replace(self.s(number + 1, last, lane=lane))
    return number


@app.task(bind=True, name="keyed.goes_on", coordinate=QUEUE)
def goes_on(self: Task, how: str, lane: str = "own") -> Any:
    """Goes on with tasks of which one is in its own lane, in each way that there is."""
    mine, other = add.s(1, 2, lane=lane), add.s(3, 4, lane="other")
    if how.startswith("replace"):
        self.replace({
            "chain": chain(mine, plain.s(10), again.s(lane=lane), add.s(100, lane=lane)),
            "group": group(mine, other),
            "chord": group(mine, other) | total.s(),
            "mixed": chain(other, add.s(1, lane=lane)),
            "foreign": chain(other, plain.s(1)),
        }[how.split()[1]])  # fmt: skip
    made = {"call": mine, "chain": chain(other, add.s(1, lane=lane), plain.s(1)), "group": group(mine, other)}
    result = made[how.split()[1]].apply_async()
    if how.startswith("return"):
        return result
    with allow_join_result():
        if how.startswith("iterate"):
            return [part["result"] for _, part in result.iter_native(timeout=60)]
        return (result.wait if how.startswith("wait") else result.get)(timeout=60)
