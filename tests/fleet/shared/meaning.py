"""The cases of test_meaning.py: what a call may do, and what is seen of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery, chain, chord, group
from celery.canvas import StampingVisitor
from celery.exceptions import TimeLimitExceeded
from celery.result import AsyncResult, GroupResult, allow_join_result

from coordinator import Coordinator
from tests.harness.waiting import wait_until

CASES: dict[str, Callable[[Run], Any]] = {}


def case(name: str) -> Callable[[Callable[[Run], Any]], Callable[[Run], Any]]:
    def add(body: Callable[[Run], Any]) -> Callable[[Run], Any]:
        CASES[name] = body
        return body

    return add


class Run:
    """One case for one kind of tasks. `turn`: a number that makes a further run another one."""

    def __init__(self, name: str, module: Any, kind: str, turn: int) -> None:
        self.id = f"{name}, {kind}, {turn}"
        self.module, self.kind = module, kind
        self.tasks = module.KINDS[kind]
        self.app = self.tasks.app
        self.made: Any = None

    def s(self, what: str, *args: Any, task: str = "usual", **kwargs: Any) -> Any:
        return getattr(self.tasks, task).s(*args, what=what, run=self.id, **kwargs)

    def si(self, what: str, *args: Any, **kwargs: Any) -> Any:
        made = self.s(what, *args, **kwargs)
        made.set(immutable=True)
        return made

    def call(self, signature: Any, **options: Any) -> Any:
        """As a user of this kind calls it."""
        if self.kind != "submitted":
            return signature.apply_async(**options)
        made = signature.clone().set(**options)
        lane = (made.get("kwargs") or {}).get("lane") or f"{self.id} {time.monotonic_ns()}"
        return AsyncResult(self.module.coordinator.submit(lane, made).id, app=self.app)

    def notes(self) -> list[str]:
        found: list[str] = self.module.notes(self.id)
        return found

    def noted(self, *texts: str) -> None:
        wait_until(lambda: set(texts) <= set(self.notes()), what=f"{self.id}: {texts} is not noted: {self.notes()}")

    def open(self) -> None:
        self.module.open_gate(self.id)

    def begin(self, body: Callable[[Run], Any]) -> None:
        try:
            self.made = body(self)
        except Exception as error:
            self.made = f"{type(error).__name__} at the call"
            self.why = error

    def outcome(self) -> tuple[Any, list[str]]:
        return seen(self.made), sorted(self.notes())


def seen(made: Any) -> Any:
    """What a user sees of a result."""
    if isinstance(made, GroupResult):
        return [seen(one) for one in made.results]
    if isinstance(made, AsyncResult):
        state, value = made.state, made.result
        if state == "SUCCESS":
            return value
        if isinstance(value, TimeLimitExceeded):
            return (state, "TimeLimitExceeded")
        return (state, f"{type(value).__name__}({value})" if isinstance(value, BaseException) else value)
    return made


def simple(name: str, make: Callable[[Run], Any], **options: Any) -> None:
    CASES[name] = lambda run: run.call(make(run), **{k: v(run) if callable(v) else v for k, v in options.items()})


def soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def ended(result: Any, seconds: float = 40) -> Any:
    wait_until(result.ready, seconds)
    return result


def in_state(result: Any, state: str) -> None:
    wait_until(lambda: result.state == state, what=lambda: f"{result.state}, not {state}")


# Calls and their options.

CASES["delay"] = lambda run: run.call(run.s("add", 1, 2))
simple("countdown", lambda run: run.s("add", 1), countdown=0.3)
simple("eta", lambda run: run.s("add", 1), eta=lambda _: soon(0.3))
simple("eta in the past", lambda run: run.s("add", 1), eta=lambda _: soon(-60))
simple("expires, in time", lambda run: run.s("add", 1), expires=60)
simple("expires, too late", lambda run: run.s("add", 1), expires=lambda _: soon(-60))
simple("expires before its eta", lambda run: run.s("add", 1), expires=0.3, countdown=1)
simple("queue", lambda run: run.s("seen", "delivery_info"), queue="other")
simple("routing_key", lambda run: run.s("add", 1), exchange="other", routing_key="other")
simple("task_id", lambda run: run.s("add", 1), task_id=lambda run: run.id.replace(" ", "").replace(",", "."))
simple("time_limit", lambda run: run.s("sleep", 20), time_limit=2)
simple("soft_time_limit", lambda run: run.s("sleep", 20), soft_time_limit=2)
simple("both limits", lambda run: run.s("sleep", 20), soft_time_limit=2, time_limit=30)
simple("time_limit of the task", lambda run: run.s("sleep", 20, task="limited"))
simple("shadow", lambda run: run.s("seen", "shadow"), shadow="another name")
simple("ignore_result", lambda run: run.s("add", 1), ignore_result=True)
simple("ignore_result of the task", lambda run: run.s("add", 1, task="silent"))
simple("ignore_result=False of a task that ignores", lambda run: run.s("add", 1, task="silent"), ignore_result=False)
simple("headers", lambda run: run.s("seen", "tenant", "headers"), headers={"tenant": "seven"})
simple("headers of a base class", lambda run: run.s("seen", "tenant", task="tenant"))
simple("headers of a handler: published", lambda run: run.s("seen", "trace"))
simple("headers of a base class in a chain",
       lambda run: chain(run.s("echo", 1), run.s("seen_behind", "tenant", task="tenant")))  # fmt: skip
simple("headers of a base class first in a chain",
       lambda run: chain(run.s("seen", "tenant", task="tenant"), run.s("echo")))  # fmt: skip
simple("headers of a base class in a group",
       lambda run: group(run.s("seen", "tenant", task="tenant"), run.s("echo")))  # fmt: skip
simple("headers of a base class in a chord",
       lambda run: chord([run.s("seen", "tenant", task="tenant"), run.s("echo")], run.s("echo")))  # fmt: skip
simple("headers of a handler: published in a chain",
       lambda run: chain(run.s("seen", "trace"), run.s("seen_behind", "trace")))  # fmt: skip
simple("headers of a handler of the caller: published here in a chain",
       lambda run: chain(run.s("seen", "place"), run.s("echo")))  # fmt: skip
simple("headers of a handler of the caller: published here in a group",
       lambda run: group(run.s("seen", "place"), run.s("seen", "place")))  # fmt: skip
simple("headers of a handler of the caller: published here in a chord",
       lambda run: chord([run.s("seen", "place"), run.s("echo")], run.s("echo")))  # fmt: skip
simple("retries", lambda run: run.s("seen", "retries"), retries=2)
simple("serializer", lambda run: run.s("add", 1), serializer="json", compression="gzip")
simple("retry of the publish", lambda run: run.s("add", 1), retry=True, retry_policy={"max_retries": 1})
simple("argsrepr", lambda run: run.s("seen", "argsrepr", "kwargsrepr"), argsrepr="(hidden)", kwargsrepr="{hidden}")
simple("root_id and parent_id", lambda run: run.s("seen", "root_id", "parent_id"), root_id="root", parent_id="parent")
simple("reply_to", lambda run: run.s("seen", "reply_to"), reply_to="someone")
simple("stamps", lambda run: run.s("seen", "stamps", "stamped_headers"), stamped_headers=["team"], team="red")
simple("dates as arguments", lambda run: run.s("dates", datetime(2026, 1, 1, tzinfo=UTC)))
simple("sets as arguments", lambda run: run.s("dates", {1, 2}))
simple("bytes as arguments", lambda run: run.s("dates", b"bytes"))
simple("an object as argument", lambda run: run.s("dates", object()))
simple("a wrong argument", lambda run: run.s("add", task="two", z=1))
simple("a wrong argument, unchecked", lambda run: run.s("add", 1, task="loose", z=1))
simple("a rate limit", lambda run: run.s("add", 1, task="slow"))
CASES["one id twice"] = lambda run: [
    ended(run.call(run.s("add", 1), task_id=f"twice.{run.kind}")),
    run.call(run.s("add", 1), task_id=f"twice.{run.kind}"),
][0]


@case("in the call's own process")
def _(run: Run) -> Any:
    return [run.s("add", 1)(), run.s("add", 1).apply().get()]


# The request.

for field in ("args", "kwargs", "argsrepr", "kwargsrepr", "called_directly", "is_eager", "group", "chain", "chord",
              "callbacks", "errbacks", "expires", "eta", "ignore_result", "timelimit", "time_limit", "stamps",
              "retries", "children", "root_id", "parent_id", "replaced_task_nesting", "utc", "shadow", "headers",
              "stamped_headers", "redelivered", "delivery_info", "task", "lang", "properties", "reply_to"):  # fmt: skip
    simple(f"request.{field}", lambda run, field=field: run.s("seen", field))  # type: ignore[misc]
simple("request.expires, with one", lambda run: run.s("seen", "expires"), expires=datetime(2099, 1, 1, tzinfo=UTC))
simple("request.eta, with one", lambda run: run.s("seen", "eta"), eta=datetime(2020, 1, 1, tzinfo=UTC))
simple("request.ignore_result, with one", lambda run: run.s("ignored_seen"), ignore_result=True)
simple("request.delivery_info, with priority", lambda run: run.s("seen", "delivery_info"), priority=3)
simple("request.timelimit, with limits", lambda run: run.s("seen", "timelimit"), time_limit=30, soft_time_limit=20)
simple("request.callbacks, with a link", lambda run: run.s("seen_links"), link=lambda run: run.si("echo"))
simple("request of a second step",
       lambda run: chain(run.s("echo", 1), run.s("seen_behind", "root_id", "parent_id")))  # fmt: skip
simple("request in a group", lambda run: group(run.s("seen", "group_index") for _ in range(2)))

# What follows.

simple("link", lambda run: run.s("add", 1), link=lambda run: run.s("add", 10))
simple("two links", lambda run: run.s("add", 1), link=lambda run: [run.s("add", 10), run.si("add", 20)])
simple("link of a chain", lambda run: run.s("add", 1), link=lambda run: chain(run.s("add", 10), run.s("add", 20)))
simple("link_error", lambda run: run.s("fail"), link_error=lambda run: run.s("", task="error"))
simple("link_error, immutable", lambda run: run.s("fail"), link_error=lambda run: run.si("echo"))
simple("link after a failure", lambda run: run.s("fail"), link=lambda run: run.s("add", 10))
simple("chain", lambda run: chain(run.s("add", 1), run.s("add", 10), run.s("add", 100)))
simple("chain, immutable", lambda run: chain(run.s("add", 1), run.si("add", 10)))
simple("chain that fails", lambda run: chain(run.s("add", 1), run.s("fail"), run.s("add", 100)))
simple("chain in a chain", lambda run: chain(run.s("add", 1), chain(run.s("add", 10), run.s("add", 100))))
simple("chain with a link", lambda run: chain(run.s("add", 1), run.s("add", 10)), link=lambda run: run.s("add", 100))
simple("chain with a link_error", lambda run: chain(run.s("fail"), run.s("add", 10)),
       link_error=lambda run: run.s("", task="error"))  # fmt: skip
simple("chain with a countdown", lambda run: chain(run.s("add", 1), run.s("add", 10)), countdown=0.2)
simple("chain, a step with a link",
       lambda run: chain(run.s("add", 1).set(link=run.s("add", 1000)), run.s("add", 10)))  # fmt: skip
simple("chain, a step with a countdown", lambda run: chain(run.s("add", 1), run.s("add", 10).set(countdown=0.2)))
simple("group", lambda run: group(run.s("add", 1), run.s("add", 2)))
simple("group with a failure", lambda run: group(run.s("add", 1), run.s("fail")))
simple("group in a group", lambda run: group(run.s("add", 1), group(run.s("add", 2), run.s("add", 3))))
simple("group of chains", lambda run: group(chain(run.s("add", 1), run.s("add", 2)), run.s("add", 3)))
simple("chord", lambda run: chord([run.s("add", 1), run.s("add", 2)], run.s("add")))
simple("chord that fails", lambda run: chord([run.s("add", 1), run.s("fail")], run.s("add")))
simple("chord whose body fails", lambda run: chord([run.s("add", 1), run.s("add", 2)], run.s("fail")))
simple("chord with a link_error", lambda run: chord([run.s("add", 1), run.s("fail")], run.s("add")),
       link_error=lambda run: run.s("", task="error"))  # fmt: skip
simple("chord in a chain",
       lambda run: chain(run.s("add", 1), group(run.s("add", 2), run.s("add", 3)), run.s("add")))  # fmt: skip
simple("chord with a chain as its body",
       lambda run: chord([run.s("add", 1), run.s("add", 2)], chain(run.s("add"), run.s("add", 10))))  # fmt: skip
simple("chord in a chord", lambda run: chord(
    [run.s("add", 1), chord([run.s("add", 2), run.s("add", 3)], run.s("add"))], run.s("add")))  # fmt: skip
simple("map", lambda run: run.tasks.two.map([1, 2]))
simple("starmap", lambda run: run.tasks.two.starmap([(1, 2), (3, 4)]))
simple("chunks", lambda run: run.tasks.two.chunks([(1, 2), (3, 4)], 1).group())
simple("map in a chain", lambda run: chain(run.si("echo"), run.tasks.two.map([1, 2])))
simple("stamps by a visitor", lambda run: stamped(chain(run.s("echo", 1), run.s("seen_behind", "stamps"))))


class Team(StampingVisitor):
    def on_signature(self, sig: Any, **headers: Any) -> dict[str, Any]:
        return {"team": "red"}


def stamped(canvas: Any) -> Any:
    canvas.stamp(Team())
    return canvas


# What a body may do.

for kind in ("task", "chain", "group", "chord", "fails"):
    simple(f"replace by a {kind}", lambda run, kind=kind: run.s("replace", kind))  # type: ignore[misc]
simple("replace in a chain", lambda run: chain(run.s("echo", 1), run.s("behind", "task"), run.s("add", 100)))
simple("replace in a chord", lambda run: chord([run.s("replace", "task"), run.s("add", 1)], run.s("add")))
simple("replace by a task that ignores", lambda run: chain(run.s("replace", "ignores"), run.s("add", 100)))
simple("add_to_chord", lambda run: chord([run.s("grows", 1), run.s("add", 2)], run.s("add")))
simple("calls of its own", lambda run: run.s("calls"))
CASES["children"] = lambda run: len(ended(run.call(run.s("calls"))).children)
simple("a handle as its result", lambda run: run.s("handles"))
simple("an unhandled SystemExit", lambda run: run.s("exits"))
simple("Ignore", lambda run: run.s("ignore"))
simple("Ignore in a chain", lambda run: chain(run.s("ignore"), run.s("add", 10)))
simple("Ignore with a link", lambda run: run.s("ignore"), link=lambda run: run.s("add", 10))
simple("Ignore with a link_error", lambda run: run.s("ignore"), link_error=lambda run: run.s("", task="error"))
simple("Ignore in a chord", lambda run: chord([run.s("ignore"), run.s("add", 1)], run.s("add")))
simple("Reject", lambda run: run.s("reject"))
simple("Reject in a chain", lambda run: chain(run.s("reject"), run.s("add", 10)))
simple("Reject and requeue", lambda run: run.s("requeue", task="late"))
simple("Reject and requeue, 25 times", lambda run: run.s("requeue", 25, task="late"))
simple("retry", lambda run: run.s("retry", 2))
simple("retry in a chain", lambda run: chain(run.s("retry", 1), run.s("add", 10)))
simple("retry in a chord", lambda run: chord([run.s("retry", 1), run.s("add", 10)], run.s("add")))
simple("retry with an error, to the end", lambda run: run.s("retry_exc"))
simple("retry to the end", lambda run: run.s("retry_most"))
simple("retry with other args", lambda run: run.s("retry_args"))
simple("retry with other kwargs", lambda run: run.s("retry_kwargs"))
simple("retry in another queue", lambda run: run.s("retry_queue"))
simple("retry with a time_limit", lambda run: run.s("retry_limit"))
simple("retry without raising", lambda run: run.s("retry_quiet"))
simple("autoretry_for", lambda run: run.s("fail", task="auto"))
simple("handlers of a success", lambda run: run.s("add", 1, task="handlers"))
simple("handlers of a failure", lambda run: run.s("fail", task="handlers"))
simple("handlers of a retry", lambda run: run.s("retry", task="handlers"))
simple("signals of a success", lambda run: run.s("add", 1))
simple("signals of a failure", lambda run: run.s("fail"))
simple("signals of a retry", lambda run: run.s("retry"))
simple("signals of an Ignore", lambda run: run.s("ignore"))
simple("killed", lambda run: run.s("killed"))


CASES["a group in the own lane"] = lambda run: type(ended(run.call(run.s("own_lane", lane=run.id))).result).__name__


@case("retry, with a call behind it in its lane")
def _(run: Run) -> Any:
    calls = [run.call(run.s("first", lane=run.id))]
    run.noted("first 0")
    calls.append(run.call(run.s("echo", lane=run.id)))
    return [[ended(call).state for call in calls], run.notes()]


@case("the state of a retry")
def _(run: Run) -> Any:
    made = run.call(run.s("retry_waits"))
    in_state(made, "RETRY")
    return [*seen(made), ended(made).state]


@case("update_state")
def _(run: Run) -> Any:
    made = run.call(run.s("progress", task="tracked"))
    in_state(made, "PROGRESS")
    found = seen(made)
    run.open()
    return [found, ended(made).state]


@case("STARTED")
def _(run: Run) -> Any:
    made = run.call(run.s("gate", task="tracked"))
    in_state(made, "STARTED")
    run.open()
    return ended(made).state


@case("an error")
def _(run: Run) -> Any:
    return seen(ended(run.call(run.s("fail"))))


@case("get of an error")
def _(run: Run) -> Any:
    return got(run, "fail")


@case("get of an error whose type is unknown here")
def _(run: Run) -> Any:
    return got(run, "unknown")


@case("get of an error with two arguments")
def _(run: Run) -> Any:
    return got(run, "odd")


@case("get of a time limit")
def _(run: Run) -> Any:
    return got(run, "sleep", 20, task="limited")[-1]


def got(run: Run, *what: Any, **named: Any) -> Any:
    """The types of what `get` raises, as `except` sees it."""
    made: Any = ended(run.call(run.s(*what, **named)))
    if run.kind == "submitted":
        made = run.module.coordinator.job(made.id)
        error = run.module.coordinator._error_of(made)
        return [type(error).__name__, error.args, "TimeLimitExceeded" in str(type(error).__mro__)]
    with suppress(AssertionError), allow_join_result():
        try:
            return made.get(timeout=60)
        except Exception as error:
            return [type(error).__name__, error.args, "TimeLimitExceeded" in str(type(error).__mro__)]


@case("what a result says")
def _(run: Run) -> Any:
    made = ended(run.call(run.s("add", 1, 2), queue="other"))
    return [made.args, sorted(made.kwargs), made.retries, made.queue, made.name.partition(".")[2], bool(made.worker)]


@case("what a result says of retries")
def _(run: Run) -> Any:
    return [ended(run.call(run.s(what, 2))).retries for what in ("retry", "retry_most")]


# Revokes.


@case("revoke before its turn")
def _(run: Run) -> Any:
    made = run.call(run.s("add", 1), countdown=5)
    time.sleep(0.5)
    made.revoke()
    return made


@case("revoke of a running one")
def _(run: Run) -> Any:
    made = run.call(run.s("sleep", 2))
    run.noted("sleeps")
    made.revoke()
    return made


@case("terminate a running one")
def _(run: Run) -> Any:
    made = run.call(run.s("sleep", 20))
    run.noted("sleeps")
    made.revoke(terminate=True)
    return made


@case("terminate in a chain")
def _(run: Run) -> Any:
    made = run.call(chain(run.s("sleep", 20), run.s("add", 10)))
    run.noted("sleeps")
    (made.parent or made).revoke(terminate=True)
    return made


@case("revoke by a stamp")
def _(run: Run) -> Any:
    made = run.call(run.s("add", 1), countdown=5, stamped_headers=["case"], case=run.id)
    time.sleep(0.5)
    run.app.control.revoke_by_stamped_headers({"case": [run.id]})
    return made


@case("terminate by a stamp")
def _(run: Run) -> Any:
    made = run.call(run.s("sleep", 20), stamped_headers=["case"], case=run.id)
    run.noted("sleeps")
    run.app.control.revoke_by_stamped_headers({"case": [run.id]}, terminate=True)
    return made


@case("revoke by a stamp, before the call")
def _(run: Run) -> Any:
    run.app.control.revoke_by_stamped_headers({"case": [run.id]})
    time.sleep(0.5)
    return run.call(run.s("add", 1), stamped_headers=["case"], case=run.id)


@case("a backend that is away")
def _(run: Run) -> Any:
    app: Any = Celery("away", broker="memory://", backend="redis://127.0.0.1:1/0", set_as_current=False)
    app.conf.result_backend_transport_options = {"retry_policy": {"timeout": 0.5}}
    if run.kind != "plain":
        settings = run.module.coordinator.settings
        Coordinator(app, url=settings.url, prefix=settings.prefix)
    own = {"coordinate": {"key": "k"}} if run.kind == "keyed" else {}

    @app.task(name="away.ship", shared=False, **own)
    def ship() -> None: ...

    try:
        job = ship.delay() if run.kind != "submitted" else app.coordinator.submit("away", ship.s())
        return app.coordinator.cancel(job.id)
    finally:
        app.close()
