"""Every block of the docs runs: Python page for page, in order; commands really, or as far as their options go."""

import importlib
import inspect
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from subprocess import PIPE
from typing import Any
from xml.etree import ElementTree

import pytest

from tasks.settings import Settings
from tests.docs.pages import ELSEWHERE, LANGUAGES, OF_SERVICE, OTHERS, PAGES, REST, SERVICE, names_of
from tests.harness.command import environment
from tests.harness.redis import RedisServer
from tests.harness.snippets import ROOT, Snippet, snippets
from tests.harness.warm import python, start

# Blocks that are marked as not run; each needs something that a test must not have, or must not change.
MOST_NOT_RUN = 7
BLOCKS = {str(path.relative_to(ROOT)): snippets(path) for path in [*PAGES, *REST]}


def of(language: str) -> dict[str, list[Snippet]]:
    found = {page: [one for one in blocks if one.language == language] for page, blocks in BLOCKS.items()}
    return {page: blocks for page, blocks in found.items() if blocks and page not in ELSEWHERE}


def test_every_block_is_of_a_kind_that_runs_or_says_why_not() -> None:
    here = [one for page, blocks in BLOCKS.items() if page not in ELSEWHERE for one in blocks]
    assert [str(one) for one in here if one.language not in LANGUAGES | set(OTHERS)] == []
    asked = [ELSEWHERE[page] for page in BLOCKS if page in ELSEWHERE]
    asked += [OTHERS[one.language] for one in here if one.language in OTHERS]
    assert [path for path in asked if not (ROOT / path).exists()] == []
    not_run = [str(one) for blocks in BLOCKS.values() for one in blocks if one.not_run]
    assert len(not_run) <= MOST_NOT_RUN, not_run


@pytest.fixture
def folder(tmp_path: Path, redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a reader without settings; the installation is the test's own."""
    for name in set(os.environ) - set(environment()):
        monkeypatch.delenv(name)
    monkeypatch.setenv("COORDINATOR_PREFIX", prefix)
    monkeypatch.setenv("COORDINATOR_TIMEOUT", "10")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", sorted(set(of("python")) - OF_SERVICE))
def test_the_python_of_a_page_runs_in_order(
    page: str, folder: Path, redis_server: RedisServer, request: pytest.FixtureRequest
) -> None:
    with names_of(page, redis_server) as names:
        for block in of("python")[page]:
            if block.title:
                (folder / block.title).write_text(block.on(redis_server.port).text)
                names |= vars(importlib.import_module(block.title.removesuffix(".py")))
            elif not block.not_run:
                block.on(redis_server.port).run(names)
        for test in [one for name, one in names.items() if name.startswith("test_")]:
            test(*map(request.getfixturevalue, inspect.signature(test).parameters))


@pytest.mark.parametrize("page", sorted(set(of("python")) & OF_SERVICE))
def test_the_python_of_the_service_runs_in_order(
    page: str, folder: Path, redis_server: RedisServer, prefix: str
) -> None:
    blocks = [one.on(redis_server.port).text for one in of("python")[page] if not one.not_run]
    told: dict[str, Any] = {"CELERY_BROKER_URL": redis_server.url(1), "COORDINATOR_URL": redis_server.url(0)}
    env = environment(**told, COORDINATOR_PREFIX=prefix, TASKS_DATA_DIR=str(folder))
    done = python(["-c", SERVICE + "\n".join(blocks)], folder, env)
    assert done.returncode == 0, done.stderr
    with redis_server.client(1) as broker:
        broker.delete("coordinator.refresh")


def test_the_ten_lines_of_the_readme_ship_an_order(redis_server: RedisServer, coordinator_jobs: Any) -> None:
    (block,) = of("python")["README.md"]
    with names_of("README.md", redis_server) as names:
        block.on(redis_server.port).run(names)
        jobs = coordinator_jobs(names["coordinator"])
        names["order"](42)
        assert [job.key for job in jobs.submitted] == ["order/42", "stock", "ledger"]
        assert jobs.submitted[0].state == "succeeded"


def test_settings_in_files_can_be_read() -> None:
    assert all(tomllib.loads(one.text) for blocks in of("toml").values() for one in blocks)
    names = [line.partition("=")[0] for blocks in of("sh").values() for one in blocks for line in one.text.splitlines()]
    known = {f"TASKS_{name.upper()}" for name in Settings.model_fields}
    assert names
    assert set(names) <= known


def test_every_command_parses_with_its_options(tmp_path: Path) -> None:
    blocks = [one for page in of("console").values() for one in page if not one.not_run]
    commands = [command for one in blocks for command, _ in one.commands()]
    prose = "".join(path.read_text() for path in [*PAGES, *REST])
    codes = re.findall(r"`(coordinator [^`\n]+)`", re.sub(r"^```.*?^```", "", prose, flags=re.DOTALL | re.MULTILINE))
    asked = tmp_path / "asked"
    asked.write_text(json.dumps({"commands": commands, "codes": codes}))
    env = environment(TASKS_DATA_DIR=str(tmp_path))
    with asked.open() as stdin:
        started = start(["-m", "tests.harness.console"], ROOT, env, stdin=stdin, stdout=PIPE, stderr=PIPE)
    said, failed = started.communicate(60)
    assert (said.strip(), started.returncode) == ("", 0), said + failed
    assert min(len(commands), len(codes)) > 20


def test_messages_that_a_page_pushes_are_taken(redis_server: RedisServer) -> None:
    pushed = [
        command
        for page in of("console").values()
        for one in page
        for command, _ in one.on(redis_server.port).commands()
        if command.startswith("redis-cli")
    ]
    with redis_server.client(1) as broker:
        broker.delete("coordinator.refresh")
    for command in pushed:
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=20)
        assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr
    with redis_server.client(1) as broker:
        assert [json.loads(one) for one in broker.lrange("coordinator.refresh", 0, -1)] == [{"node": "urn:node:KNB"}]
        broker.delete("coordinator.refresh")


def test_each_command_that_changes_what_is_there_wants_why_and_takes_by() -> None:
    """A new command that wants no reason stands in this list."""
    look = "actions, catalog, components, doctor, event, event show, grabs, grabs show, items, items orphans"
    look += ", items show, job, jobs, lane"
    look += ", events, lanes, libraries, metrics, quotas, quotas show, quotas weights, tenants"
    look += ", members, members check, nodelist, nodelist export, nodelist history, nodelist show, nodelist verify"
    look += ", nodes, nodes show, refused, refused show, schedule, schedule show, settings, sorters, status, wait, why"
    look += ", dashboard, check, check-redis"
    work = "components run, items add, items watch, nodelist refresh, submit, up"
    work += ", members refresh, web"
    clear = "libraries remove, members forget"
    _, *parts = re.split(r"^\*\*`coordinator ", (ROOT / "docs" / "commands.md").read_text(), flags=re.MULTILINE)
    wants = {}
    for part in parts:
        options = "| `--why TEXT` | The reason, for others to read. [required] |", "| `--by TEXT` |"
        has = {option in part for option in options}
        assert len(has) == 1, part
        wants[" ".join(re.findall(r"[a-z-]+(?= |`)", part.partition("**")[0].partition("[")[0]))] = has.pop()
    assert {name for name, why in wants.items() if not why} == {*f"{look}, {work}, {clear}".split(", ")}


def test_the_recording_is_of_a_run_that_went_well_and_is_small() -> None:
    recording = (ROOT / "docs" / "demo.svg").read_text()
    shown = "".join(ElementTree.fromstring(recording).itertext())
    assert "objects of 3 members in" in shown
    assert len(recording) < 300_000
