"""`coordinator nodes`: who is alive, one of them in full, and an operator who takes one out."""

import pytest

from coordinator import Coordinator
from tests.harness.command import Call, listed, loaded, told
from tests.harness.hand_node import Puppet

SIZES = ["NODE", "SLOTS", "RUNNING", "RUNG", "ORDINARY", "LOAD", "MEMORY"]


def test_each_node_is_a_line_with_room_load_and_score(call: Call, coordinator: Coordinator) -> None:
    one, two = Puppet(coordinator.store, "one"), Puppet(coordinator.store, "two")
    one.up(capacity=3)
    two.up(queue="slow")
    one.submit("a", job_id="j")
    one.nodes.beat("one", "a", {"load": 0.12345, "memory": 0.5})
    taken = one.must_take()
    head, first, second = told(call("nodes")).splitlines()
    assert head.split() == [*SIZES, "SCORE", "VERSION", "QUEUES", "LABELS", "DRAINED"]
    assert first.split()[:8] == ["one", "3", "1", "1", "0", "0.123", "0.5", "0.668"]
    assert second.split()[0] == "two"
    assert [node["name"] for node in listed(call("nodes", "--json"))] == ["one", "two"]
    one.finish(taken)


def test_a_node_is_shown_in_full_with_its_score(call: Call, coordinator: Coordinator) -> None:
    one = Puppet(coordinator.store, "one")
    one.up()
    one.nodes.beat("one", "a", {"ordinary": 1})
    lines = [line.split() for line in told(call("nodes", "show", "one")).splitlines()]
    assert ["score", "0.25"] in [[line[0], line[1][:4]] for line in lines if line[0] == "score"]
    assert lines[-2:] == [["task", "shop.other"], ["task", "shop.work"]]
    found = loaded(call("nodes", "show", "one", "--json"))
    assert (found["name"], found["capacity"]) == ("one", 4)


def test_who_drained_a_node_and_why_is_shown_until_it_is_undrained(call: Call, node: Puppet) -> None:
    assert told(call("nodes", "drain", "one", "--why", "new disk", "--by", "ann")) == "one drains"
    assert told(call("nodes", "drain", "one", "--why", "new disk", "--by", "ann")) == "one was drained already"
    assert told(call("nodes")).splitlines()[1].endswith(": new disk")
    (line,) = [line for line in told(call("nodes", "show", "one")).splitlines() if line.startswith("drained")]
    assert line.split()[1:3] == ["by", "ann"]
    assert loaded(call("nodes", "undrain", "one", "--why", "done", "--json")) == {"node": "one", "undrained": True}
    assert told(call("nodes", "undrain", "one", "--why", "done")) == "one was not drained"
    node.submit("a")
    assert len(node.order()) == 1


def test_a_name_of_which_no_node_is_alive_is_drained_with_a_word_about_that(call: Call) -> None:
    assert told(call("nodes", "drain", "cn9", "--why", "slip")).endswith(
        "no node of that name is alive, and it gets no jobs when it comes"
    )
    assert "cn9" in call("nodes").stderr
    assert told(call("nodes", "undrain", "cn9", "--why", "slip")) == "cn9 takes jobs again"
    assert call("nodes").stderr == ""


def test_nodes_that_died_while_nobody_lives_to_sweep_are_told_as_gone(
    call: Call, node: Puppet, coordinator: Coordinator
) -> None:
    node.submit("a", job_id="j")
    taken = node.must_take()
    coordinator.store._client.zadd(coordinator.store.key("alive"), {"one": 1})
    assert coordinator.nodes() == []
    result = call("nodes")
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr.strip() == "gone: one; the next living node takes over its jobs"
    assert listed(call("nodes", "--json")) == []
    assert "no node one is alive" in call("nodes", "show", "one").stderr
    assert "no node is alive: " in call("status").stderr
    assert coordinator.why("j").codes == ["running.orphan", "running.job"]
    node.submit("b", job_id="late")
    assert coordinator.why("late").codes == ["waiting.fleet"]
    node.finish(taken)
    node.order()


@pytest.mark.parametrize(
    ("args", "status", "told"),
    [
        (["show", "cn9"], 2, "no node cn9 is alive"),
        (["show"], 2, "Missing argument 'NODE'"),
        (["drain", "one"], 2, "Missing option '--why'"),
        (["undrain", "one"], 2, "Missing option '--why'"),
        (["drain", "", "--why", "x"], 2, "a name is 1 to 255 bytes of printable text"),
        (["drian", "one"], 2, "No such command 'drian'"),
        (["--json", "show", "one"], 2, "--json goes behind the subcommand: nodes show --json"),
    ],
)
def test_wrong_input_is_told_in_a_line(call: Call, args: list[str], status: int, told: str) -> None:
    result = call("nodes", *args)
    assert (result.exit_code, result.stdout) == (status, "")
    assert told in result.stderr


def test_slots_that_ordinary_tasks_have_are_busy(call: Call, node: Puppet) -> None:
    node.nodes.beat("one", "a", {"ordinary": 3})
    assert "1 alive, 3 of 4 slots busy" in told(call("status"))


def test_a_lost_node_stands_in_front_of_when_it_was_lost_and_what_became_of_its_jobs(
    call: Call, coordinator: Coordinator
) -> None:
    two = Puppet(coordinator.store, "two")
    two.up()
    two.nodes.leave("two", "a", [])
    head, row = told(call("nodes", "--lost")).splitlines()
    assert (head.split()[0], row.split()[0]) == ("NODE", "two")
    assert row.split()[-6:] == ["shop", "False", "it", "held", "no", "job"]
    two.up(incarnation="b")
    assert told(call("nodes", "--lost")).splitlines()[1].split()[-5:] == ["True", "it", "held", "no", "job"]
    [lost] = listed(call("nodes", "--lost", "--json"))
    assert (lost["name"], lost["count"], lost["back"]) == ("two", 0, True)
