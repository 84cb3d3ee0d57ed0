"""The atomic steps: their headers say what they take, and each may be asked again after a lost reply."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from coordinator.fleet.nodes import Beat
from tasks.documents.library import text_of
from tests.harness.each import each
from tests.harness.functions import ALL, NAMES, RULES, STEPS, Step, code, tables_in
from tests.harness.hand_node import TASKS, Puppet

# They add something new: a full Redis refuses them. All others go on there, so that what began can end.
REFUSED_WHEN_FULL = {
    "job_submit", "lock_take", "grab_take", "sorter_add", "document_ask", "fence_next", "schedule_follow", "tick_take",
    "run_take", "entry_put",
}  # fmt: skip
ONLY_READ = {"counts_read", "entries_read", "jobs_likely", "jobs_read", "lines_likely", "ready_read"}
WRITES = re.compile(r"'(?:[HLRSZ]?(?:ADD|PUSH|REM|POP|SET|DEL|MOVE)|H?INCR(?:BY)?|HSETNX|P?EXPIRE|PERSIST|RENAME)'")


def every_step(steps: list[Step]) -> Callable[[Callable[[Step], None]], object]:
    return each(lambda: steps, lambda step: step.name)


def test_each_step_is_defined_once_in_the_way_that_this_test_reads() -> None:
    assert sorted(step.name for step in ALL) == sorted(NAMES)
    defined = {file: len(re.findall(r"^\s*step\.define\(", text_of(file), re.MULTILINE)) for file in STEPS}
    assert defined == dict(Counter(step.file for step in ALL))


@every_step(ALL)
def test_a_step_has_a_header_that_names_what_it_takes(step: Step) -> None:
    assert step.header, f"{step.name}: say what it does, directly above it"
    assert re.match(rf"{step.name}: \w", step.header[0])
    returns = re.sub(r"\s+", " ", " ".join(step.header).partition(" returns ")[2])
    assert "asked again" in returns or step.name in ONLY_READ
    named = (step.says("args") or "").split()
    rest = named.pop() if named and named[-1].endswith("…") else None
    unpacked = re.search(r"^  local ([\w, ]+) =\s+unpack\(args(?:, 1, (\d+))?\)$", step.body, re.MULTILINE)
    first = unpacked[1].split(", ") if unpacked else []
    assert named[: len(first)] == first
    assert not unpacked or (int(unpacked[2]) == len(first) if rest else not unpacked[2])
    single = {int(number) for number in re.findall(r"args\[(\d+)\]", step.body)} | set(range(1, len(first) + 1))
    assert single == set(range(1, len(named) + 1))
    lists = re.findall(r"unpack\(args, (\d+)\)|for i = (\d+), #args|#args > (\d+)|, args, (\d+)\)", step.body)
    begins = {int(number) for found in lists for number in found if number}
    assert begins - {len(named)} == ({len(named) + 1} if rest else set())
    assert step.given == ("c, args" if step.says("args") else "c")


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


def test_python_names_the_steps_that_there_are() -> None:
    root = Path(__file__).parents[3]
    folders = (root / "coordinator", root / "tasks" / "documents")
    text = "\n".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    named = set(re.findall(r"(?:\bstep|\bstep_many|\blook|\blooking|_insist|_acted)\(\s*\"(\w+)\"", text))
    assert named == NAMES


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
    answers = [node.store.step("sweep", 450, 2000)[0] for _ in range(2)]
    assert answers == [1, 0]


def test_all_tasks_of_a_node_are_known_whatever_their_number(node: Puppet) -> None:
    assert node.up(tasks=(*TASKS, *(f"shop.task{i}" for i in range(9000))))
    assert len(node.nodes.all()[0].tasks) == 9002
