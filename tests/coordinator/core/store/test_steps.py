"""The atomic steps: each takes what it is declared to take, and may be asked again after a lost reply."""

import ast
import inspect
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from coordinator.core.fleet.nodes import Beat
from tasks.documents.library import text_of
from tests.harness.each import each
from tests.harness.functions import ALL, DECLARED, NAMES, RULES, STEPS, Step, code, tables_in
from tests.harness.hand_node import TASKS, Puppet

# They add something new: a full Redis refuses them. All others go on there, so that what began can end.
REFUSED_WHEN_FULL = {
    "job_submit", "lock_take", "grab_take", "sorter_add", "document_ask", "fence_next", "schedule_follow", "tick_take",
    "run_take", "entry_put", "outbox_submit", "event_set", "entry_backfill", "backfill_take",
}  # fmt: skip
ONLY_READ = {
    "backfills_read",
    "counts_read",
    "entry_backfill_plan",
    "entries_read",
    "jobs_likely",
    "jobs_read",
    "lanes_grouped",
    "lines_grouped",
    "lines_likely",
    "ready_read",
}
WRITES = re.compile(r"'(?:[HLRSZ]?(?:ADD|PUSH|REM|POP|SET|DEL|MOVE)|H?INCR(?:BY)?|HSETNX|P?EXPIRE|PERSIST|RENAME)'")


def every_step(steps: list[Step]) -> Callable[[Callable[[Step], None]], object]:
    return each(lambda: steps, lambda step: step.name)


def test_each_step_is_defined_once_in_the_way_that_this_test_reads() -> None:
    assert sorted(step.name for step in ALL) == sorted(NAMES)
    defined = {file: len(re.findall(r"^\s*step\.define\(", text_of(file), re.MULTILINE)) for file in STEPS}
    assert defined == dict(Counter(step.file for step in ALL))


def test_each_declared_step_is_defined_and_each_defined_one_declared() -> None:
    assert {*DECLARED} == NAMES


@every_step(ALL)
def test_a_step_takes_in_lua_what_it_is_declared_to_take(step: Step) -> None:
    declared = DECLARED[step.name]
    assert step.takes == [*declared.parameters, *(("args", "from") if declared.rest else ())]


@every_step(ALL)
def test_a_declaration_says_what_a_repeated_call_answers(step: Step) -> None:
    said = inspect.getdoc(DECLARED[step.name].declared) or ""
    assert re.search(r"Asked\s+again", said) or step.name in ONLY_READ


@every_step(ALL)
def test_a_step_goes_on_in_a_full_redis_unless_it_adds_something_new(step: Step) -> None:
    if step.name in ONLY_READ:
        assert step.flags == ["no-writes"]
        assert not WRITES.search(step.body)
    else:
        assert step.flags == ([] if step.name in REFUSED_WHEN_FULL else ["allow-oom"])


@each(lambda: [*RULES, *STEPS])
def test_a_file_is_one_table_and_names_only_those_above_it(file: str) -> None:
    text = text_of(file)
    above = RULES[: RULES.index(file) + 1] if file in RULES else RULES
    assert tables_in(text) <= set(above)
    assert not re.findall(rf"(?<![\w.:])({'|'.join(STEPS)})\.define", code(text))
    if file in RULES:
        assert re.search(rf"^local {file} = {{", text, re.MULTILINE)
        assert text.endswith(f"\nreturn {file}\n")
        tables = re.findall(r"^function (\w+)[.:]", text, re.MULTILINE)
        assert set(tables) <= {file}
    else:
        assert not re.search(r"^return|^local \w+ = {}", text, re.MULTILINE)


OUTLIVES = {
    "redis": "looks up once what the server has",
    "locks": "notes that this server has given a fence",
    "shares": "knows what tasks usually take, and how far a class has come: hints, of which none is lost for good",
    "alarm": "knows who looks next at a quota: the sweep does, too",
    "base": "notes whether it rested before it gives one",
}


@each(lambda: [*RULES, *STEPS])
def test_nothing_outlives_a_call(file: str) -> None:
    """A local of a file is a function, a table that nobody writes, or a constant."""
    text = code(text_of(file))
    names = re.findall(r"^local (\w+)(?:, \w+)* =", text, re.MULTILINE)
    changed = [name for name in names if re.search(rf"^ +{name}(?:\.\w+|\[.*?\])? = ", text, re.MULTILINE)]
    assert not changed or file in OUTLIVES


def test_no_step_is_called_by_another() -> None:
    for file in (*RULES, *STEPS):
        called = {name for name in NAMES if re.search(rf"(?<!define\(')\b{name}\b", re.sub(r"--.*", "", text_of(file)))}
        assert not called, file


def test_python_calls_each_step_and_none_by_a_text() -> None:
    root = Path(__file__).parents[4]
    folders = (root / "coordinator", root / "tasks" / "documents")
    texts = [path.read_text() for folder in folders for path in folder.rglob("*.py") if path.name != "steps.py"]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    assert NAMES - {getattr(node, "id", getattr(node, "attr", "")) for node in nodes} == set()
    assert re.findall(r"\.(?:step|step_many|look|looking)\(\s*\"\w+\"", "\n".join(texts)) == []


def test_a_node_may_say_twice_who_it_is_and_that_it_leaves(node: Puppet) -> None:
    node.submit("a", job_id="j")
    taken = node.must_take()
    assert [node.up(), node.up()] == [True, True]
    assert list(node.work()) == [taken.runner.encode()]
    beats = [node.nodes.beat("one", "a", {"load": 0}) for _ in range(2)]
    assert [replace(beat, swept=0, now=0) for beat in beats if beat] == [Beat([], None, False, True, 0, 0)] * 2
    node.finish(taken)
    assert [node.nodes.leave("one", "a") for _ in range(2)] == [True, False]
    assert node.nodes.beat("one", "a", {}) is None
    assert node.nodes.all() == []


def test_two_sweeps_at_once_are_one(node: Puppet) -> None:
    answers = [node.store.step("sweep", 450, 2000, "")[0] for _ in range(2)]
    assert answers == [1, 0]


def test_all_tasks_of_a_node_are_known_whatever_their_number(node: Puppet) -> None:
    assert node.up(tasks=(*TASKS, *(f"shop.task{i}" for i in range(9000))))
    assert len(node.nodes.all()[0].tasks) == 9002
