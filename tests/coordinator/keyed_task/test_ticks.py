"""A beat's entry that names a keyed task, and no key of its own."""

from coordinator.store.times import to_ms
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
