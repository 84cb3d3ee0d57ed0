"""A verb is declared once; each door is made of that."""

import inspect
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import click
import pytest
from celery import Celery
from click.testing import CliRunner

from coordinator import Coordinator, Extension, Forbidden, InvalidJob, aio
from coordinator.aio import coordinator as aio_coordinator
from coordinator.core.author import Acting, Author, acting, author
from coordinator.core.verbs import Answer, Given, Option, Thing, Verb, readings_in, verb, verbs_in
from coordinator.ops.cli.main import GROUPS
from coordinator.ops.cli.verbs import commands_of
from coordinator.ops.dashboard.acts import acts_of
from coordinator.ops.dashboard.api import READINGS
from coordinator.ops.dashboard.app import dashboard
from coordinator.ops.dashboard.extend import Pages
from coordinator.ops.diagnosis.codes import Codes, cause
from coordinator.ops.verbs.declared import verbs
from tests.coordinator.ops.dashboard.stage import TestClient
from tests.harness.installation import Installation

COMMANDS = Path(__file__).parents[4].joinpath("docs/commands.md").read_text()
VERBS, OWN = verbs(), [one for one in verbs().values() if one.name != "sorter-add"]  # which makes a signature first
DONE: list[tuple[str, int, str]] = []

TILL = Thing("till", ("till",), ("id",), ("TILL",), "/")
CASH = Option("cash", "So much change.", kind=int, default=100, least=0, most=500)


def _told(_: object, given: Given, answer: int) -> Answer:
    return {"till": given["till"], "cash": answer}, f"till {given['till']} is open with {answer}"


@verb(TILL, CASH, tell=_told, host=None, grave=True, plan=lambda _, given: [f"till {given['till']} would open"])
def open_till(till: str, cash: int = 100, **acting: Unpack[Acting]) -> int:
    """Open a till.

    Gives its change.
    """
    DONE.append((till, cash, acting.get("why", "")))
    return cash


@pytest.fixture
def shop(apps: Installation) -> Coordinator:
    """An app that adds a verb in one place."""
    app: Celery = apps.app("keyed").app
    coordinator: Coordinator = app.coordinator
    own = [*verbs_in(open_till).values()]
    coordinator.extend(Extension("shop", commands=commands_of(own), pages=lambda: Pages(verbs=own)))
    DONE.clear()
    return coordinator


def called(coordinator: Coordinator, *args: str) -> Any:
    [command] = [one for extension in coordinator.extensions for one in extension.commands]

    @click.group()
    @click.pass_context
    def root(ctx: click.Context) -> None:
        from coordinator.ops.cli.session import Session

        ctx.obj = Session(None)
        vars(ctx.obj).update(app=coordinator.app, coordinator=coordinator, extensions=())

    root.add_command(command)
    return CliRunner().invoke(root, ["open-till", *args])


def visitor(coordinator: Coordinator) -> TestClient:
    app = dashboard(coordinator, token="of-a-program-0123", hosts=["testserver"])
    return TestClient(app, headers={"Authorization": "Bearer of-a-program-0123"}, follow_redirects=False)


def test_a_verb_that_is_declared_in_one_place_has_its_command(shop: Coordinator) -> None:
    done = called(shop, "7", "--cash", "5", "--why", "we open")
    assert (done.exit_code, done.output) == (0, "till 7 is open with 5\n")
    assert called(shop, "7", "--dry-run", "--why", "w").output == "till 7 would open\n"
    assert DONE == [("7", 5, "we open")]
    help_ = called(shop, "--help").output
    assert "Open a till." in help_
    assert "Gives its change" not in help_, "only the first paragraph is for all"
    wrong = called(shop, "7", "--cash", "501", "--why", "w")
    assert wrong.exit_code == 2
    assert "--cash" in wrong.output


def test_a_verb_that_is_declared_in_one_place_has_its_route_with_its_plan_and_checked_values(
    shop: Coordinator,
) -> None:
    web = visitor(shop)
    body = {"id": "7", "cash": "5", "why": "we open"}
    assert web.post("/api/act/open-till", json=body).json()["done"] == "till 7 is open with 5."
    assert web.post("/api/act/open-till?dry_run=true", json=body).json()["plan"] == ["till 7 would open"]
    assert DONE == [("7", 5, "we open")]
    wrong = web.post("/api/act/open-till", json=body | {"cash": "501"})
    assert (wrong.status_code, wrong.json()["detail"]) == (400, "cash is a whole number from 0 to 500, not 501")
    assert len(DONE) == 1
    assert "open-till" in web.get("/api/openapi.json").text


def test_a_verb_that_is_declared_in_one_place_has_its_form(shop: Coordinator) -> None:
    web = visitor(shop)
    form = web.get("/act/open-till", params={"id": "7"}).text
    assert all(
        part in form
        for part in ("Till 7</strong>", "Open a till.", "So much change.", 'name="cash"', "till 7 would open")
    )


def test_an_answer_of_why_may_advise_a_verb_of_the_app(shop: Coordinator) -> None:
    codes = Codes({"till.closed": ("is closed", "open-till id=till cash")}, lambda: verbs_in(open_till))
    advised = cause("till.closed", "till 7", (), codes, till="-7", cash=5)
    assert advised.frees == "coordinator open-till --cash 5 --why … -- -7"
    assert (advised.act, advised.values) == ("open-till", {"id": "-7", "cash": "5"})


def test_a_viewer_is_refused_by_the_function_itself() -> None:
    DONE.clear()
    for call in (partial(open_till, "7"), partial(verbs_in(open_till)["open-till"].call, None, {"till": "7"})):
        with acting(Author("eve", "viewer")), pytest.raises(Forbidden, match="open_till"):
            call()
    assert (DONE, author().role) == ([], "operator")


@pytest.mark.parametrize("name", [one.name for one in OWN])
def test_a_declaration_has_the_parameters_of_its_function(name: str) -> None:
    declared: Verb = VERBS[name]
    takes = inspect.signature(inspect.unwrap(declared.function)).parameters
    named = [*takes][1 : len(declared.thing.parameters) + 1] if "self" in takes else []
    if declared.thing.kind not in ("sorter", "event"):
        assert tuple(named) == declared.thing.parameters
    for option in declared.options:
        assert option.name in takes, option
        default = takes[option.name].default
        assert default in (option.default, inspect.Parameter.empty) or option.argument, option


@pytest.mark.parametrize("name", VERBS)
def test_each_verb_has_a_command_in_the_docs_a_route_and_an_awaited_call(name: str) -> None:
    declared = VERBS[name]
    group, _, own = declared.command.rpartition(" ")
    assert own in GROUPS[group].commands
    assert f"coordinator {declared.command}" in COMMANDS
    assert name in acts_of([declared])
    classes = (aio.Coordinator, aio_coordinator.Entries, aio_coordinator.Sorter, aio_coordinator.Event)
    assert any(inspect.iscoroutinefunction(getattr(one, declared.function.__name__, None)) for one in classes)


def test_each_reading_has_a_route_and_an_awaited_call() -> None:
    found = readings_in(Coordinator)
    assert {*found} <= {*READINGS}
    for declared in found.values():
        assert inspect.iscoroutinefunction(getattr(aio.Coordinator, declared.function.__name__)), declared.name


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        (CASH, "", 100),
        (CASH, "0", 0),
        (CASH, "500", 500),
        (Option("share", kind=float), "0.5", 0.5),
        (Option("all", kind=bool, default=False), "true", True),
        (Option("args", kind=list), '["a", 1]', ["a", 1]),
        (Option("to", choices={"back": "last"}), "back", "back"),
    ],
)
def test_an_option_reads_the_text_of_a_form(option: Option, text: str, value: object) -> None:
    assert option.read(text) == value


@pytest.mark.parametrize(
    ("option", "text", "says"),
    [
        (CASH, "-1", "cash is a whole number from 0 to 500, not -1"),
        (CASH, "much", "cash is a whole number from 0 to 500, not much"),
        (CASH, "1.5", "cash is a whole number from 0 to 500, not 1.5"),
        (Option("share", kind=float), "nan?", "share is a number, not nan?"),
        (Option("args", kind=list), "{}", "args is a JSON list, not {}"),
        (Option("args", kind=dict), "{", "args is a JSON object: "),
        (Option("to", choices={"back": "last", "front": "first"}), "up", "to is one of back, front, not up"),
    ],
)
def test_a_wrong_text_is_refused_with_the_name_of_the_option(option: Option, text: str, says: str) -> None:
    with pytest.raises(InvalidJob) as wrong:
        option.read(text)
    assert str(wrong.value).startswith(says)
