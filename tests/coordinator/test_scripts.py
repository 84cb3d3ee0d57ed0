"""The atomic steps: their headers say what they take, and each may be asked again after a lost reply."""

import re
from pathlib import Path

import pytest

from coordinator import Coordinator
from coordinator.nodes import Beat
from tests.puppet import TASKS, Puppet

LUA = Path(__file__).parents[2] / "coordinator" / "lua"
SCRIPTS = sorted(path for path in LUA.glob("*.lua") if not path.read_text().startswith("-- Shared: "))


SHARED = [path.read_text() for path in LUA.glob("*.lua") if path not in SCRIPTS]


def test_a_function_that_scripts_share_has_its_name_alone() -> None:
    names = re.findall(r"^local function (\w+)", "\n".join(SHARED), re.MULTILINE)
    assert sorted(names) == sorted(set(names))  # else which of them is called would hang on the order of the includes


def named(head: list[str], what: str) -> tuple[list[str], bool]:
    """The fixed names of a header's line, and whether a list follows them."""
    line = next((line for line in head if line.startswith(f"-- {what} ")), f"-- {what}").split()[2:]
    return [name for name in line if not name.endswith("…")], bool(line) and line[-1].endswith("…")


def used(body: str, what: str) -> tuple[set[int], set[int]]:
    """Which places a script reads one by one, and from which on it reads a list."""
    single = {int(number) for number in re.findall(rf"{what}\[(\d+)\]", body)}
    lists = re.findall(rf"unpack\({what}, (\d+)\)|for i = (\d+), #{what}", body)
    return single, {int(number) for found in lists for number in found if number}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_takes_what_its_header_names(path: Path) -> None:
    lines = path.read_text().splitlines()
    head = [line for line in lines if line.startswith("--")]
    body = "\n".join(line for line in lines if not line.startswith("--"))
    assert head[0].startswith(f"-- {path.stem}: ")
    assert any(line.startswith("-- returns ") for line in head)

    fixed, followed = named(head, "ARGV")
    unpacked = re.search(r"^local ([\w, ]+) = unpack\(ARGV(?:, 1, (\d+))?\)$", body, re.MULTILINE)
    first = unpacked[1].split(", ") if unpacked else []
    assert fixed[: len(first)] == first
    assert not unpacked or len(first) == int(unpacked[2] or len(fixed))
    single, lists = used(body, "ARGV")
    assert single | set(range(1, len(first) + 1)) == set(range(1, len(fixed) + 1))
    assert lists == ({len(fixed) + 1} if followed else set())

    fixed, followed = named(head, "KEYS")
    assert fixed
    single, lists = used(body, "KEYS")
    if "-- include" not in path.read_text():
        assert single == set(range(1, len(fixed) + 1))
    assert lists == ({len(fixed) + 1} if followed else set())


def test_a_taking_asked_for_again_gives_the_same_job_and_no_other(node: Puppet) -> None:
    node.submit("a", job_id="j")
    node.submit("b", job_id="other")
    first = node.take("token", "runner")
    assert first
    assert node.take("token", "runner") == first
    assert (first.id, node.lanes.job("j").attempt, node.lanes.job("other").state) == ("j", 1, "ready")
    assert list(node.work()) == [b"runner"]
    node.finish(first)
    node.order()


def test_an_outcome_told_again_is_answered_the_same_with_the_same_next_job(node: Puppet) -> None:
    for key in "abc":
        node.submit(key, job_id=key)
    first = node.must_take()
    answer = node.finish(first, next_token="next")
    assert (answer.verdict, answer.state, answer.next and answer.next.id) == ("accepted", "succeeded", "b")
    assert node.finish(first, next_token="next") == answer
    assert node.lanes.job("c").state == "ready"
    assert answer.next
    node.finish(answer.next)
    node.order()


def test_an_attempt_that_raised_and_is_told_again_counts_once(node: Puppet) -> None:
    node.submit("a", job_id="j", max_attempts=2)
    first = node.must_take()
    answers = [node.finish(first, "raised", delay=0) for _ in range(2)]
    assert [(one.verdict, one.state) for one in answers] == [("accepted", "retrying")] * 2
    node.sweep()
    again = node.must_take()
    assert node.finish(first, "raised", delay=0)[:2] == ("accepted", "retrying")
    assert again.attempt == 2
    assert node.finish(again, "raised").state == "failed"
    assert node.finish(first, "raised", delay=0)[:2] == ("accepted", "retrying")


def test_a_lock_asked_for_again_is_the_same_lock(coordinator: Coordinator) -> None:
    store = coordinator.store
    args = ("l", "a", "skip", 0, 0, 0, "", "limits", "0 0 0 0 5000 5000", "token", "t", "ttl", 5000)
    first, second = store.run("job_submit", *args), store.run("job_submit", *args)
    assert (first[0], second[0]) == (b"started", b"duplicate")
    assert first[2:4] == second[2:4]
    assert [store.run("lock_release", "l", "t")[0] for _ in range(2)] == [b"released"] * 2


def test_what_is_said_again_changes_nothing(node: Puppet) -> None:
    store = node.store
    node.submit("a", job_id="j", tell=True)
    taken = node.must_take()
    assert [node.renew(taken) for _ in range(2)] == [[True], [True]]
    assert [store.run("job_progress", "j", taken.token, "1/2") for _ in range(2)] == [1, 1]
    assert [store.run("runner_condemn", "one", taken.runner, taken.token, "j") for _ in range(2)] == [1, 1]
    assert [node.lose(taken, "timed_out"), node.lose(taken, "timed_out")] == ["failed", ""]
    assert [store.run("notices_take", "shop") for _ in range(2)] == [[b"j"], []]
    assert [store.run("notices_told", "shop", "j") for _ in range(2)] == [1, 0]
    assert [node.lanes.cancel("j") for _ in range(2)] == ["failed", "failed"]


def test_a_loss_reported_twice_counts_once(node: Puppet) -> None:
    node.submit("a", job_id="j")
    taken = node.must_take()
    assert [node.lose(taken), node.lose(taken)] == ["ready", ""]
    assert node.lanes.job("j").losses == 1
    assert node.order() == ["j"]


def test_a_node_may_say_twice_who_it_is_and_that_it_leaves(node: Puppet) -> None:
    node.submit("a", job_id="j")
    taken = node.must_take()
    assert [node.up(), node.up()] == [True, True]
    assert list(node.work()) == [taken.runner.encode()]
    assert [node.nodes.beat("one", "a", {"load": 0}) for _ in range(2)] == [Beat([], None)] * 2
    node.finish(taken)
    assert [node.nodes.leave("one", "a") for _ in range(2)] == [[], []]
    assert node.nodes.beat("one", "a", {}) is None
    assert node.nodes.all() == []


def test_an_entry_is_dropped_once_and_only_with_its_token(node: Puppet) -> None:
    node.submit("a")
    taken = node.must_take()
    drops = [("other", 0), (taken.token, 1), (taken.token, 0)]
    assert [node.store.run("work_drop", "one", taken.runner, token) for token, _ in drops] == [n for _, n in drops]
    node.finish(taken)


def test_two_sweeps_at_once_are_one(node: Puppet) -> None:
    answers = [node.store.run("sweep", 450, 60000, 2000)[0] for _ in range(2)]
    assert answers == [1, 0]


def test_a_clock_that_went_back_does_not_end_the_sweeps(node: Puppet) -> None:
    client = node.store.client
    future = int(client.time()[0]) * 1000 + 3_600_000
    client.hset(node.store.key("swept"), mapping={"last": future, "grace": 0})
    node.submit("a", job_id="j")
    node.must_take()
    client.zadd(node.store.key("leases"), {"j": 1})
    assert node.store.run("sweep", 450, 60000, 2000)[0] == 1
    assert node.lanes.job("j").state == "running", "after a gap nobody is lost for one ttl"
    node.lanes.cancel("j")
    assert node.sweep() == (["j"], [])


def test_all_tasks_of_a_node_are_known_whatever_their_number(node: Puppet) -> None:
    assert node.up(tasks=(*TASKS, *(f"shop.task{i}" for i in range(9000))))
    assert len(node.nodes.all()[0].tasks) == 9002
