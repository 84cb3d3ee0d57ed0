"""A component is declared once, with words that fit."""

from typing import Any

import pytest
from celery import Celery

from coordinator import Coordinator, SettingsError
from tasks.batches.values import STOPPED
from tasks.components import Component, Components, UnknownComponent, Work


def registry() -> Components:
    return Components(Coordinator(Celery("press", broker="memory://"), url="redis://127.0.0.1:1/0"))


@pytest.fixture
def components() -> Components:
    return registry()


def work(given: Work) -> None:
    pass


def component(**words: Any) -> Component:
    return Component("Checker", "1.0", "Checked", work, **words)


def test_a_second_declaration_of_a_name_or_an_event_is_refused(components: Components) -> None:
    assert components.declare("Checker", "1.0", event="Checked")(work) is work
    with pytest.raises(SettingsError, match="'Checker' is declared twice"):
        components.declare("Checker", "1.1", event="Looked_at")(work)
    with pytest.raises(SettingsError, match="'Other': Checker makes the event Checked already"):
        components.declare("Other", "1.0", event="Checked")(work)
    assert [one.version for one in components.all()] == ["1.0"]
    with pytest.raises(UnknownComponent, match="declared are: Checker"):
        components["Other"]


def test_its_own_event_counts_as_future_unless_it_stands_in_old() -> None:
    assert component(past=["A"], future=["B"]).wanted.future == (STOPPED, "B", "Checked")
    assert component(old=["Checked"]).wanted.future == (STOPPED,)


def test_its_work_queue_is_never_below_its_simultaneous_processes() -> None:
    assert component(work_queue=2, simultaneous_processes=5).most == 5
    assert component(work_queue=7, simultaneous_processes=5).most == 7


@pytest.mark.parametrize(
    "words",
    [
        {"past": "A"}, {"past": [""]}, {"past": None}, {"old": 5}, {"types": ["a "]}, {"future": [5]},
        {"simultaneous_processes": 0}, {"work_queue": 0}, {"max_results": -1},
        {"simultaneous_processes": 1.5},
        {"every": 0}, {"every": -1}, {"every": "often"}, {"every": None}, {"max_lifetime": 0}, {"max_lifetime": "1"},
        {"time_limit": -1}, {"time_limit": "5"}, {"soft_time_limit": 0}, {"soft_time_limit": 9, "time_limit": 9},
        {"max_losses": -1}, {"max_losses": "3"}, {"max_attempts": 0}, {"retry_delay": "x"}, {"retry_delay": [-1]},
        {"infrastructure": ["OSError"]}, {"infrastructure": OSError},
    ],
)  # fmt: skip
def test_a_word_that_does_not_fit_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=f"component 'Checker': {next(iter(words))}"):
        component(**words)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ({"evnt": "Checked"}, "unknown option 'evnt' (did you mean 'event'?)"),
        ({"event": "Checked", "past_faild": ["A"]}, "unknown option 'past_faild' (did you mean 'past_failed'?)"),
        ({}, "event '': give 1 to 200 characters without control characters"),
        ({"event": ["Checked"]}, "event ['Checked']: give 1 to 200 characters without control characters"),
        ({"event": "Checked\n"}, "event 'Checked\\n': give 1 to 200 characters without control characters"),
        ({"event": "Checked "}, "event 'Checked ' begins or ends with a blank"),
        ({"event": "Checked", "past": "Data_Received"}, "past is a list of types: write past=['Data_Received']"),
    ],
)
def test_a_mistyped_word_of_a_declaration_is_named(components: Components, words: dict[str, Any], wrong: str) -> None:
    with pytest.raises(SettingsError) as refused:
        components.declare("Checker", "1.0", **words)(work)
    assert str(refused.value) == f"component 'Checker': {wrong}"


def test_what_is_declared_must_be_a_function(components: Components) -> None:
    with pytest.raises(SettingsError, match="component 'Checker': function 5 cannot be called"):
        components.declare("Checker", "1.0", event="Checked")(5)  # type: ignore[arg-type]


def test_a_node_gets_the_jobs_of_the_components_that_it_has(components: Components) -> None:
    components.declare("Checker", "1.0", event="Checked")(work)
    (entry,) = components._entries()[1]
    assert entry.task == "tasks.components.poll.Checker"
    tasks = {name for name in components.app.tasks if name.startswith("tasks.components.")}
    assert tasks == {f"tasks.components.{kind}.Checker" for kind in ("poll", "work", "record")}


@pytest.mark.parametrize("name", ["", "a/b", "SBOI", "component", "run", "x" * 101, "a\nb"])
def test_a_name_that_is_no_lanes_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="component"):
        Component(name, "1.0", "Checked", work)


def test_a_child_has_a_time_limit_unless_its_component_wants_none() -> None:
    assert (component().time_limit, component(time_limit=None).time_limit) == (21600, None)


def test_a_beat_has_an_entry_for_each_component(components: Components) -> None:
    components.declare("Checker", "1.0", event="Checked", every=30)(work)
    version, entries = components._entries()
    (entry,) = entries
    assert (entry.name, entry.key, entry.schedule) == ("component/Checker", [], 30)
    assert entry.submit["uses"] == "component/Checker"
    components.declare("Other", "1.0", event="Other")(work)
    assert components._entries()[0] != version


def test_a_beat_hears_that_a_component_looks_more_often() -> None:
    versions = []
    for every in (30, 60, 30):
        made = registry()
        made.declare("Checker", "1.0", event="Checked", every=every)(work)
        versions.append(made._entries()[0])
    assert versions[0] == versions[2] != versions[1]
