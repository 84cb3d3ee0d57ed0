"""`coordinator nodes`: who is alive, one of them in full, and an operator who takes one out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coordinator import Coordinator
from coordinator.cli import cli
from tests.puppet import Puppet
from tests.servers import RedisServer

Call = Callable[..., Result]
SIZES = ["NODE", "SLOTS", "RUNNING", "RUNG", "ORDINARY", "LOAD", "MEMORY"]


@pytest.fixture
def call(redis_server: RedisServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command in a folder without an app, on the test's installation."""
    monkeypatch.chdir(tmp_path)
    environ = {"COORDINATOR_URL": redis_server.url(0), "COORDINATOR_PREFIX": prefix, "COORDINATOR_APP": None}

    def run(*args: str) -> Result:
        return CliRunner().invoke(cli, ["nodes", *args], env=environ, prog_name="coordinator")

    return run


def said(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def loaded(result: Result) -> Any:
    return json.loads(said(result))


def test_each_node_is_a_line_with_room_load_and_score(call: Call, coordinator: Coordinator) -> None:
    one, two = Puppet(coordinator.store, "one"), Puppet(coordinator.store, "two")
    one.up(capacity=3)
    two.up(queue="slow")
    one.submit("a", job_id="j")
    one.nodes.beat("one", "a", {"load": 0.12345, "memory": 0.5})
    taken = one.must_take()
    head, first, second = said(call()).splitlines()
    assert head.split() == [*SIZES, "SCORE", "VERSION", "QUEUES", "LABELS", "DRAINED"]
    assert first.split()[:8] == ["one", "3", "1", "1", "0", "0.123", "0.5", "0.668"]
    assert second.split()[0] == "two"
    assert [node["name"] for node in loaded(call("--json"))] == ["one", "two"]
    one.finish(taken)


def test_a_node_is_shown_in_full_with_its_last_choices_and_their_reasons(call: Call, coordinator: Coordinator) -> None:
    one, two = Puppet(coordinator.store, "one"), Puppet(coordinator.store, "two")
    one.up()
    two.up()
    two.nodes.beat("two", "a", {"ordinary": 1})
    one.submit("a")
    shown = said(call("show", "one"))
    (choice,) = [line for line in shown.splitlines() if line.startswith("chosen")]
    assert choice.endswith("for celery of shop: score 0.000, before two with 0.250")
    assert [line.split() for line in shown.splitlines()][-2:] == [["task", "shop.other"], ["task", "shop.work"]]
    found = loaded(call("show", "one", "--json"))
    assert (found["name"], found["capacity"], found["choices"][0]["next"]) == ("one", 4, "two")
    one.order()


def test_who_drained_a_node_and_why_is_shown_until_it_is_undrained(call: Call, node: Puppet) -> None:
    assert said(call("drain", "one", "--why", "new disk", "--by", "ann")) == "one drains"
    assert said(call("drain", "one", "--why", "new disk", "--by", "ann")) == "one was drained already"
    assert said(call()).splitlines()[1].endswith(": new disk")
    (line,) = [line for line in said(call("show", "one")).splitlines() if line.startswith("drained")]
    assert line.split()[1:3] == ["by", "ann"]
    assert loaded(call("undrain", "one", "--why", "done", "--json")) == {"node": "one", "undrained": True}
    assert said(call("undrain", "one", "--why", "done")) == "one was not drained"
    node.submit("a")
    assert len(node.order()) == 1


def test_a_name_of_which_no_node_is_alive_is_drained_with_a_word_about_that(call: Call) -> None:
    assert said(call("drain", "cn9", "--why", "slip")).endswith(
        "none of that name is alive, one that comes is given nothing"
    )
    assert "cn9" in call().stderr
    assert said(call("undrain", "cn9", "--why", "slip")) == "cn9 takes work again"
    assert call().stderr == ""


@pytest.mark.parametrize(
    ("args", "status", "told"),
    [
        (["show", "cn9"], 1, "no node cn9 is alive"),
        (["show"], 2, "Missing argument 'NODE'"),
        (["drain", "one"], 2, "Missing option '--why'"),
        (["undrain", "one"], 2, "Missing option '--why'"),
        (["drain", "", "--why", "x"], 1, "give 1 to 512 bytes of text"),
        (["drian", "one"], 2, "No such command 'drian'"),
        (["--json", "show", "one"], 2, "give --json to the command: nodes show --json"),
    ],
)
def test_wrong_input_is_told_in_a_line(call: Call, args: list[str], status: int, told: str) -> None:
    result = call(*args)
    assert (result.exit_code, result.stdout) == (status, "")
    assert told in result.stderr
