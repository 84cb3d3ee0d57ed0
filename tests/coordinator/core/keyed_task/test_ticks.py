"""A beat's entry that names a keyed task, and no key of its own."""

from typing import Any

import pytest
from celery.app.task import Task
from celery.schedules import crontab

from coordinator.core.store.times import to_ms
from coordinator.errors import InvalidJob
from coordinator.scheduler.beat import Scheduler
from coordinator.scheduler.entry import tick_id
from tests.coordinator.scheduler.beats import FAST, Beats, instant_of, run, without_gap


def test_an_entry_without_a_key_goes_through_the_lane_of_its_task_under_the_tick_s_id(beats: Beats) -> None:
    table = {
        "n": {"schedule": FAST, "task": "keyed.mail", "kwargs": {"to": "ann"}},
        "past": {"schedule": FAST, "task": "keyed.mail", "args": ("ben",), "options": {"coordinate": False}},
    }
    several = [beats.beat(beat_schedule=table) for _ in range(2)]
    for beat in several:

        @beat.app.task(name="keyed.mail", shared=False, coordinate={"key": "mail/{to}"})
        def mail(to: str) -> None:
            """Mail it."""

    run(*several, until=lambda: len(beats.ids()) >= 3 and len(beats.messages()) >= 3)
    assert without_gap(beats.ids())
    assert {beats.coordinator.job(one).keys for one in beats.ids()} == {("mail/ann",)}
    assert {message["headers"]["argsrepr"] for message in beats.messages()} == {"['ben']"}


def test_a_tick_whose_base_class_calls_once_for_each_tenant_makes_each_call_once(beats: Beats) -> None:
    class ForEachTenant(Task):
        abstract = True

        def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            return [super(ForEachTenant, self).apply_async(args, {"to": to}, **options) for to in ("ann", "ben", "cy")]

    def beat() -> Scheduler:
        hourly = {name: {"schedule": crontab(minute="0"), "task": f"{name}.mail"} for name in ("keyed", "plain")}
        own = beats.beat(beat_schedule=hourly)
        for name, more in {"keyed": {"coordinate": {"key": "mail/{to}"}}, "plain": {}}.items():

            @own.app.task(name=f"{name}.mail", shared=False, base=ForEachTenant, **more)
            def mail(to: str) -> None:
                """Mail it."""

        return own

    beat().tick()
    hour, _ = beats.missed_hour("keyed"), beats.missed_hour("plain")
    later = beat()
    run(later, until=lambda: len(beats.ids_in_any_order()) >= 3 and len(beats.messages()) >= 3)
    tick = tick_id("keyed", hour)
    keys = {one: beats.coordinator.job(one).key for one in beats.ids_in_any_order()}
    assert keys == {tick: "mail/ann", f"{tick}#2": "mail/ben", f"{tick}#3": "mail/cy"}
    assert len({message["headers"]["id"] for message in beats.messages()}) == 3
    later.app.tasks["keyed.mail"].apply_async(task_id=tick_id("keyed", hour))  # a beat that repeats the tick
    assert beats.ids_in_any_order() == {*keys}
    with pytest.raises(InvalidJob, match="is reserved"):
        beats.coordinator.submit("k", {"task": "sync"}, job_id=f"{tick}#2", if_unknown="wait")
    published = len(beats.messages())
    with pytest.raises(InvalidJob, match="makes several calls, but a submit is one job"):
        later.app.coordinator.submit("k", later.app.tasks["plain.mail"].s(to="dan"))
    assert len(beats.messages()) == published


def test_skipped_ticks_leave_nothing_behind(beats: Beats) -> None:
    beat = beats.beat(beat_schedule={"n": {"schedule": FAST, "task": "keyed.mail", "kwargs": {"to": "ann"}}})

    @beat.app.task(name="keyed.mail", shared=False, coordinate={"key": "mail/{to}", "when_busy": "skip"})
    def mail(to: str) -> None:
        """Mail it."""

    run(beat, until=beats.ids)
    (first,) = beats.ids()
    run(beat, until=lambda: int(beats.tick("n")["last"]) > to_ms(instant_of(first)) + 3000 * FAST)
    assert beats.ids() == [first]
    assert not list(beats.client.scan_iter(beats.store.key("aliases", "*")))
