"""Every command on a terminal of 80 columns, without one, before a reader that goes away, and beside a dead Redis."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from coordinator import Coordinator
from coordinator.ops.cli.later import whole
from coordinator.ops.cli.main import cli
from tasks.app import coordinator as service
from tests.harness.command import ROOT, Call, environment, refused
from tests.harness.hand_node import Puppet
from tests.harness.terminal import Terminal
from tests.harness.warm import python, start

EVERY_LOOK = """
import os, sys
from coordinator.ops.cli.main import cli
for line in sys.argv[1:]:
    print("$ " + line, flush=True)
    try:
        cli(line.split("\\t"), prog_name="coordinator")
    except SystemExit as end:
        print("status", end.code, flush=True)
"""
NEED_AN_APP = {"refused"}
LAST = {"dashboard", "up", "items watch", "web"}  # they go on until Ctrl-C
NEED_NO_REDIS = {"settings", "check"}
VALUES = {"JSON": "[]", "N": "1", "EXPRESSION": "every 60", "PRIORITY": "1"}


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Each command, and each group that does something by itself."""
    for name, found in sorted(group.commands.items()):
        command = whole(found)
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield (*path, name), command


def call_of(path: tuple[str, ...], command: click.Command) -> list[str]:
    """A call with all that the command requires."""
    args = [*path]
    for param in command.params:
        if isinstance(param, click.Argument) and (param.required or param.name == "job_id"):
            args.append(VALUES.get(param.human_readable_name, str(getattr(param.type, "choices", ["x"])[0])))
        elif isinstance(param, click.Option) and param.required:
            args += [param.opts[0], "x"]
    return args


CALLS = {" ".join(path): call_of(path, command) for path, command in leaves(cli)}
CALLS["why"] = ["why", "--summary"]
CALLS["quota"] += ["--concurrency", "1"]
CALLS["submit"] = ["submit", "k", "x"]
OF_SERVICE = {
    " ".join(path): call_of(path, command)
    for one in service.extensions
    for found in one.commands
    for path, command in leaves(click.Group(commands={str(found.name): whole(found)}))
}
LOOKS = ["status", "doctor", "jobs", "lanes", "lane\tk", "job\tj", "why\tj", "why\t--key\tk", "why\t--summary", "grabs",
         "quotas", "quotas\tshow\tq", "quotas\tweights", "tenants", "nodes", "nodes\tshow\tone", "schedule", "sorters",
         "actions", "event", "event\tshow\te", "settings", "check-redis", "libraries", "metrics"]  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(CALLS) - LAST - NEED_NO_REDIS - NEED_AN_APP))
def test_each_command_says_in_one_line_that_redis_does_not_answer(call: Call, name: str) -> None:
    done = call(*CALLS[name], COORDINATOR_URL="redis://localhost:1")
    if name == "doctor":
        assert (done.exit_code, done.output.startswith("error [redis.away] (redis redis://localhost:1)")) == (2, True)
        return
    if name == "check-redis":
        assert (done.exit_code, done.output.startswith("refused connection: Redis at redis://localhost:1")) == (2, True)
        return
    if name.startswith("refused"):  # which lie in the broker of an app
        assert "needs a Celery app" in refused(done)
        return
    assert (done.exit_code, "Is it running? COORDINATOR_URL names this Redis" in refused(done)) == (2, True)


def test_no_command_of_the_service_ends_in_a_traceback_beside_a_dead_redis(tmp_path: Path) -> None:
    """Some ask the database alone; others refuse the name x before they ask Redis."""
    env = environment(
        COORDINATOR_URL="redis://localhost:1", CELERY_BROKER_URL="redis://localhost:1", TASKS_DATA_DIR=str(tmp_path)
    )
    calls = [call for name, call in OF_SERVICE.items() if name not in LAST]
    assert len(calls) > 25
    given = ["\t".join(["-A", "tasks", *call]) for call in calls]
    done = python(["-c", EVERY_LOOK, *given], ROOT, env, timeout=100)
    ends = {part.split("\n")[0]: part.splitlines()[-1] for part in done.stdout.split("$ ")[1:]}
    assert "Traceback" not in done.stderr
    assert set(ends.values()) <= {"status 0", "status 1", "status 2", "status 3"}
    without = {" ".join(name.split("\t")[2:]) for name, end in ends.items() if end == "status 0"}
    assert without == {
        "components",
        "events",
        "items",
        "items orphans",
        "items show x",
        "items add x",
        "items prioritise x --why x",
    }
    assert "Redis at redis://localhost:1" in done.stderr


@pytest.fixture
def wide(coordinator: Coordinator) -> Iterator[Coordinator]:
    """Long names, a chain of causes, findings and acts."""
    node = Puppet(coordinator.store)
    node.up()
    coordinator.pause("k", why="the disk of the machine in the cellar is full again, and nobody is there", by="ann")
    coordinator.submit("k", {"task": "shop.work.of.a.very.long.name"}, job_id="j", if_unknown="wait")
    coordinator.submit("order/" + "4" * 60, {"task": "shop.other"}, if_unknown="wait", job_id="k")
    yield coordinator
    coordinator.resume("k")
    for job_id in ("j", "k"):
        coordinator.cancel(job_id)


@pytest.fixture
def env(wide: Coordinator) -> dict[str, str]:
    return environment(COORDINATOR_URL=wide.settings.url, COORDINATOR_PREFIX=wide.settings.prefix, TERM="xterm")


def test_each_look_fits_into_80_columns_of_a_terminal(env: dict[str, str], tmp_path: Path) -> None:
    """But for commands that are to be pasted, and for what Prometheus reads."""
    main, theirs = os.openpty()
    terminal = Terminal(main, 80, 24)
    with (tmp_path / "err").open("w") as err:
        done = start(["-c", EVERY_LOOK, *LOOKS], tmp_path, env, stdout=theirs, stderr=err)
        os.close(theirs)
        assert done.wait(100) == 0, (tmp_path / "err").read_text()
    terminal.read_all()
    parts = "\n".join(terminal.lines).split("$ ")[1:]
    assert len(parts) == len(LOOKS), (tmp_path / "err").read_text()
    too_wide = [
        (part.split("\n")[0], line)
        for part in parts
        for line in part.splitlines()
        if len(line) > 80 and not line.lstrip().startswith(("fix:", "frees it:", "coordinator_", "# "))
    ]
    assert too_wide == []


def test_each_look_is_whole_without_a_terminal_and_a_reader_that_goes_away_is_no_error(
    env: dict[str, str], tmp_path: Path
) -> None:
    done = python(["-c", EVERY_LOOK, *LOOKS], tmp_path, env, timeout=100)
    assert "4" * 60 in done.stdout
    assert "Traceback" not in done.stderr
    for look in ("metrics", "actions", "why\tj"):
        reading, writing = os.pipe()
        os.close(reading)
        with (tmp_path / "err").open("w") as err:
            ended = start(["-m", "coordinator", *look.split("\t")], tmp_path, env, stdout=writing, stderr=err)
        os.close(writing)
        ended.wait(60)
        assert (tmp_path / "err").read_text() == ""


def test_each_list_has_one_shape_in_json(wide: Coordinator, call: Call) -> None:
    for look in ("jobs", "lanes", "nodes", "actions", "grabs", "sorters", "schedule", "libraries"):
        found = json.loads(call(look, "--json").stdout)
        assert list(found)[-1] == "after"
        assert [name for name, value in found.items() if isinstance(value, list)] == [
            "entries" if look == "schedule" else look
        ]
        if look != "grabs" and look != "libraries":
            assert "--after CURSOR" in call(look, "--help").stdout
    first = json.loads(call("lanes", "--json", "--most", "1").stdout)
    rest = json.loads(call("lanes", "--json", "--most", "1", "--after", first["after"]).stdout)
    assert [lane["key"] for lane in (*first["lanes"], *rest["lanes"])] == ["k", "order/" + "4" * 60]
