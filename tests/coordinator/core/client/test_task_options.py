"""What a Celery task says of itself holds for its jobs, too, or its submit is refused by name."""

from collections.abc import Iterator

import pytest
from celery import Celery, chain, group
from celery.app.task import Task
from celery.exceptions import QueueNotFound
from kombu import Queue
from pydantic import BaseModel

from coordinator import Coordinator, InvalidJob, Job
from tests.harness.redis import RedisServer


class Parcel(BaseModel):
    number: int
    to: str = "home"


def ship(order: int, by: str = "land") -> None: ...


def ship_bound(self: Task, order: int) -> None: ...


def after(before: object, order: int) -> None: ...


def pack(parcel: Parcel, times: int = 1) -> Parcel:
    return parcel


def unite(name: str, pids: list[str] | None) -> None: ...


ANNOTATIONS = {"yard.noted": {"time_limit": 7, "soft_time_limit": 3, "queue": "notes", "priority": 4, "expires": 50}}


@pytest.fixture
def app(redis_server: RedisServer, prefix: str) -> Iterator[Celery]:
    app = Celery("yard", broker=redis_server.url(1), backend=redis_server.url(2), set_as_current=False)
    rates = {"yard.slowed": {"rate_limit": "10/m"}, "yard.bound": {"rate_limit": "0"}}
    app.conf.task_annotations = {**ANNOTATIONS, **rates}
    Coordinator(app, url=redis_server.url(0), prefix=prefix, timeout=10)
    for function in (ship, after, unite):
        app.task(function, name=f"yard.{function.__name__}", shared=False)
    app.task(ship_bound, name="yard.bound", bind=True, shared=False)
    app.task(pack, name="yard.pack", pydantic=True, shared=False)
    app.task(ship, name="yard.noted", shared=False)
    app.task(ship, name="yard.slowed", shared=False)
    app.task(ship, name="yard.loose", typing=False, shared=False)
    yield app
    app.coordinator.store.close()
    app.close()


def submitted(app: Celery, task: str, *args: object, **options: object) -> Job:
    coordinator: Coordinator = app.coordinator
    named = {name: options.pop(name) for name in ("pids",) if name in options}
    made = coordinator.submit("k", app.tasks[f"yard.{task}"].s(*args, **named), **options)  # type: ignore[arg-type]
    return coordinator.job(made.id)


@pytest.mark.parametrize(
    ("task", "args", "wrong"),
    [
        ("ship", (), "ship() missing 1 required positional argument: 'order'"),
        ("ship", (1, "sea", 3), "ship() takes from 1 to 2 positional arguments but 3 were given"),
        ("bound", (1, 2), "ship_bound() takes"),
    ],
)
def test_arguments_that_a_task_does_not_take_are_refused_at_submit(
    app: Celery, task: str, args: tuple[object, ...], wrong: str
) -> None:
    with pytest.raises(InvalidJob) as refused:
        submitted(app, task, *args)
    assert str(refused.value).startswith(f"yard.{task}: ")
    assert wrong in str(refused.value)
    assert app.coordinator.counts()["created"] == 0


def test_arguments_that_fit_are_taken_also_without_types_and_where_lists_unite(app: Celery) -> None:
    assert submitted(app, "bound", 1).args == (1,)
    assert submitted(app, "loose").args == ()
    united = submitted(app, "unite", "a", pids=["1"], collect={"how": "merge"})
    assert (united.args, united.kwargs) == (("a",), {"pids": ["1"]})


def test_a_step_is_given_what_is_put_in_front_of_its_arguments(app: Celery) -> None:
    first, then = app.tasks["yard.ship"], app.tasks["yard.after"]
    app.coordinator.submit("k", chain(first.s(1), then.s(2), then.si(None, 2)))
    app.coordinator.submit("k", chain(first.s(1), then.s(None, 2)), start_at=1)
    for wrong in (chain(first.s(1), then.s()), chain(first.s(1), then.si(2)), chain(then.s(2), first.s())):
        with pytest.raises(InvalidJob, match="missing 1 required positional argument"):
            app.coordinator.submit("k", wrong)
    with pytest.raises(InvalidJob, match=r"yard\.after: "):
        app.coordinator.submit("k", first.s(1), rollback=then.s(1))
    with pytest.raises(InvalidJob, match=r"yard\.after: "):
        app.coordinator.submit("k", chain(first.s(1), then.s(2)), start_at=1)


def test_models_of_a_pydantic_task_are_dumped_as_delay_does(app: Celery) -> None:
    assert submitted(app, "pack", Parcel(number=7)).args == ({"number": 7, "to": "home"},)
    with pytest.raises(InvalidJob, match="argument 0 is not JSON: Parcel"):
        submitted(app, "ship", Parcel(number=7))


def test_annotations_of_the_app_hold_for_jobs_and_the_signature_wins(app: Celery) -> None:
    found = app.coordinator._request("k", app.tasks["yard.noted"].s(1), {})
    fields = dict(zip(found.fields[::2], found.fields[1::2], strict=True))
    assert (found.priority, fields["expires"], fields["class"]) == (4, "+50000", "yard\nnotes")
    assert fields["limits"].split()[2] == "7000"
    assert '"soft": 3.0' in fields["spec"]
    chosen = app.coordinator._request("k", app.tasks["yard.noted"].s(1).set(priority=9), {})
    assert chosen.priority == 9


def test_the_jobs_of_a_task_with_a_rate_limit_use_a_quota_of_that_rate(app: Celery) -> None:
    assert list(submitted(app, "slowed", 1).uses) == ["rate_limit/yard.slowed"]
    assert app.coordinator.quota_status("rate_limit/yard.slowed").quota.rate == "10/m"
    assert submitted(app, "bound", 1).uses == {}, "a limit of 0 is none to Celery"


def test_a_queue_that_is_missing_is_refused_where_the_app_makes_none(redis_server: RedisServer, prefix: str) -> None:
    app = Celery("yard", broker=redis_server.url(1), set_as_current=False)
    app.conf.update(task_create_missing_queues=False, task_queues=[Queue("heavy"), Queue("light")])
    app.conf.task_default_queue = "light"
    app.conf.task_routes = {"yard.lost": {"queue": "havy"}}
    with Coordinator(app, url=redis_server.url(0), prefix=prefix, timeout=10) as coordinator:
        plain = app.task(ship, name="yard.ship", shared=False)
        lost = app.task(ship, name="yard.lost", shared=False)
        keyed = app.task(ship, name="yard.keyed", shared=False, coordinate={"key": "order/{order}"})
        wrong = plain.si(1).set(queue="havy")
        for signature in (wrong, lost.si(1), chain(plain.si(1), wrong), group(plain.si(1), wrong), group(lost.si(1))):
            with pytest.raises(InvalidJob, match=r"'havy'.*task_queues"):
                coordinator.submit("k", signature)
        with pytest.raises(InvalidJob, match=r"did you mean 'heavy'"):
            coordinator.submit("k", plain.si(1), rollback=wrong)
        for call in (keyed.s(1).set(queue="havy"), lost.s(1)):  # as Celery has it
            with pytest.raises(QueueNotFound, match="'havy'"):
                call.apply_async()
        coordinator.submit("k", plain.si(1).set(queue="heavy"))
        assert coordinator.counts()["created"] == 1
    app.close()
