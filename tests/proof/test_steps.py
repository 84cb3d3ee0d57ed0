"""Recorded steps: held against the model, done again, and caught where one of them is not what the server did."""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from proof.__main__ import cli
from proof.steps.conformance import hold
from proof.steps.documents import Documents
from proof.steps.player import Player
from proof.steps.recording import Recording, Step, recorded, steps_of
from proof.steps.replay import path_to, replay
from tests.harness.functions import ALL
from tests.harness.hand_node import Puppet, Taken, sketch
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

PREFIX = "{t}:"
ACT = '{"why": "w", "by": "ann"}'
TTL, LIFETIME, KEEP = 60_000, 3_600_000, 1_000_000


OF_ENTRIES = "operators steer entries, and ask for runs: no seed has that"
NOT_PLAYED = {
    "audit_note": "an act whose work is done elsewhere",
    "backfills_read": "what people see of backfills",
    "entry_backfill_plan": "what people see of backfills",
    "entry_backfill_stop": OF_ENTRIES,
    "entry_change": OF_ENTRIES,
    "entry_omit": OF_ENTRIES,
    "entry_pause": OF_ENTRIES,
    "entry_resume": OF_ENTRIES,
    "entry_run": OF_ENTRIES,
    "run_take": OF_ENTRIES,
    "job_retarget": "the model knows no tasks",
    "jobs_likely": "a search",
    "lanes_grouped": "what people see of tenants",
    "lines_grouped": "what people see of tenants",
    "lines_likely": "a search",
}


class Course:
    """A store whose steps are recorded, and a node of it that is played by hand."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self._folder, self.server = folder, server
        settings = Settings.model_validate({"url": server.url(0), "prefix": "t", "timeout": 5})
        self._store = Store(settings)
        self.node = Puppet(self._store, "one")
        self.step = self._store.step
        self.recording = Recording()

    def end(self) -> Recording:
        self.look()
        self.recording.read_logs([self.server.log])
        self._store.close()
        return self.recording

    def look(self) -> None:
        with redis.Redis(port=self.server.port) as client:
            self.recording.look(client, PREFIX)

    def go_back(self, kept: Path) -> None:
        """The server dies, and comes back with what was on its disk then."""
        self.server.kill()
        shutil.rmtree(self._folder / "store")
        shutil.copytree(kept, self._folder / "store")
        self.server.start()
        self._store.connections.disconnect()

    def keep(self) -> Path:
        kept = self._folder / "kept"
        shutil.copytree(self._folder / "store", kept)
        return kept

    def take(self) -> Taken:
        return self.node.must_take(bell=self.bell())

    def bell(self) -> str:
        """The next wake-up of the node, taken from its list as its supervisor does it."""
        bell: Any = self._store._client.lpop(self._store.key("wakes", "a", "one"))
        return str(bell.decode())

    def order(self) -> list[str]:
        """Run what is ready, with one bell."""
        taken: Taken | None = self.take()
        found = list[str]()
        while taken:
            found.append(taken.id)
            taken = self.node.finish(taken, next_token=f"after-{taken.token}").next
        return found

    def begin(self) -> None:
        """All that the model knows of jobs and lanes, a little."""
        node = self.node
        node.up()
        for job_id, keys in {"a1": "a", "a2": "a", "ab": ["a", "b"], "b1": "b"}.items():
            node.submit(keys, job_id=job_id, tell=job_id == "a2", max_attempts=2)
        first = self.take()
        self.step("job_progress", first.id, first.token, "1/2")
        node.renew(first)
        second = node.finish(first, next_token="second").next
        assert second
        node.finish(second, "raised")
        third = self.take()
        node.lose(third, "handed")
        self.look()
        self.step("notices_take", "shop", 10)
        node.finish(self.take())
        self.step("notices_take", "shop", 10)
        self.step("notices_sent", "shop", "a2")
        node.finish(self.take())
        self.look()

    def operate(self) -> None:
        node = self.node
        for number in range(3):
            node.submit("wide", job_id=f"w{number}")
        self.step("lane_pause", "c", "", ACT)
        node.submit("c", job_id="c1")
        node.submit("c", job_id="c2")
        self.step("job_move", "c2", 5, "front", ACT, "moved")
        self.step("lane_resume", "c", ACT)
        self.step("job_cancel", "c1", ACT, "")
        self.step("lane_pause", "d", "+1", ACT)
        self.look()
        self.step("counts_read")
        self.step("node_beat", "one", "a", TTL, "", "", "load", "0.5")
        self.step("node_drain", "one", 1, ACT)
        self.step("node_drain", "one", 0, ACT)
        assert {"c2", "w0", "w1", "w2"} <= {*self.order()}

    def flow(self) -> None:
        """Two of one quota, a rate, and a lock that uses what is left."""
        node = self.node
        self.step("quota_declare", "q", "", 2, "", "", "", ACT)
        self.step("quota_declare", "r/", "1", "", 1, 1, 1, ACT)
        for number, uses in enumerate(({"q": 1}, {"q": 1, "r/a": 1}, "q")):
            node.submit([] if number else "flow", job_id=f"f{number}", uses=uses)
        first, second = self.take(), self.take()
        assert {first.id, second.id} <= {"f0", "f1", "f2"}
        self.step("lock_take", "l3", "", "queue", "of l3", TTL, LIFETIME, "1 - q")
        self.look()
        self.step("quotas_read", "q", "r/a")
        self.step("quota_queue", "q", 2)
        for one in ("f2", "l3", "nobody"):
            self.step("quota_place", "q", one)
        self.step(
            "job_finish", first.id, first.token, "cooled_down", "null", 1, "", "", "q", "", "one", first.runner, "", TTL
        )
        node.finish(second)
        self.step("quota_cool", "q", "", ACT)
        self.step("weight_set", "flow", "2", ACT)
        self.step("sweep", 0, 2_000, "")
        self.step("lock_release", "l3", "of l3")
        self.step("quota_drop", "q", "", ACT)
        self.step("quota_drop", "r/", "1", ACT)
        while taken := node.take(bell=self.bell()):
            node.finish(taken)
            self.step("sweep", 0, 2_000, "")
        self.look()

    def hold_locks(self) -> None:
        for name in ("l1", "l2"):
            self.step("lock_take", name, "door", "queue", f"of {name}", TTL, LIFETIME, "")
        self.step("lock_wait", "l2")
        self.look()
        self.step("lock_release", "l1", "of l1")
        self.step("lock_wait", "l2")
        self.step("lock_release", "l2", "of l2")
        lane = "grab\x1fk\x1f1"
        for name in ("g1", "g2"):
            about = json.dumps({"identifier": name})
            self.step("grab_take", lane, name, f"of {name}", TTL, LIFETIME, KEEP, 3, about)
        self.step("grab_end", lane, "g1", "of g1", "complete", KEEP, '"done"')
        self.step("grab_look", lane)

    def collect_and_tick(self) -> None:
        for letter in "ba":
            fields = sketch("sorted", job_id=f"s{letter}").step_args()[6:]
            self.step("sorter_add", f"s{letter}", "sorted", "s", letter, 60_000, 0, letter, 0, 0, "", "", "", *fields)
        self.step("sorter_hasten", "s", ACT)
        self.step("sorter_flush", 10)
        self.step("entry_put", "tick", "{}", "hash", 0, "{}", ACT)
        self.step("schedule_follow", "entries", "v1", "", 10_000, "none")
        job = sketch("tick", job_id="tick@1").step_args()
        now = self.step("clock_read")[1] + 1
        while self.step("clock_read")[1] < now:
            pass
        self.step("tick_take", "tick", "hash", "", now, 0, now + 1000, "beat", 5000, "", 0, now, "b", 100, *job)
        assert set(self.order()) == {"sa", "sb", "tick@1"}
        self.look()
        self.relay()
        self.step("sweep", 0, 2_000, "")

    def relay(self) -> None:
        row = sketch("row", job_id="row").step_args()
        for token in ("t", "other"):
            self.step("lock_take", f"lock-{token}", "box", "skip", token, 60_000, 60_000, "")
            for _ in range(2):
                self.step("outbox_submit", "box", token, len(row), *row)
                self.step("outbox_forget", "box", token, "row")
            self.step("outbox_submit", "box", token, len(row), *row)
        self.step("lock_release", "lock-t", "t")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Course]]:
    with recorded(), ExitStack() as stack:

        def begin() -> Course:
            folder = tmp_path_factory.mktemp("course")
            server = RedisServer(folder / "store", "--appendonly", "yes", "--appendfsync", "always")
            server.log = folder / "log"
            return Course(folder, stack.enter_context(server))

        yield begin


@pytest.fixture(scope="module")
def whole(begun: Callable[[], Course]) -> Recording:
    course = begun()
    for part in (course.begin, course.operate, course.flow, course.hold_locks, course.collect_and_tick):
        part()
    return course.end()


def test_each_step_can_be_held_or_has_a_reason_why_not() -> None:
    unheld = {step.name for step in ALL if not hasattr(Player, step.name) and not hasattr(Documents, step.name)}
    assert unheld == NOT_PLAYED.keys()


def wrong(recording: Recording) -> list[str]:
    return hold(recording, PREFIX).wrong


def test_each_step_answers_what_the_model_says_and_leaves_its_keys(whole: Recording) -> None:
    held = hold(whole, PREFIX)
    assert (held.wrong, held.unknown.total(), held.branches) == ([], 0, 1)
    assert (held.looks, len(held.predicted)) == (8, 39)
    assert held.text() == f"{held.steps} steps in 1 branches, all keys 8 times: as the model says"


def test_the_steps_done_again_answer_the_same_and_leave_the_same_keys(whole: Recording, own_redis: RedisServer) -> None:
    way = path_to(whole, PREFIX, whole.looks[-1].state)
    assert len(way) == len(whole.steps(PREFIX)[0])
    with redis.Redis(port=own_redis.port) as client:
        assert list(replay(whole, PREFIX, way, client)) == []


def test_a_recording_that_was_saved_is_the_same(whole: Recording, tmp_path: Path) -> None:
    whole.save(tmp_path / "steps.json.xz")
    assert Recording.load(tmp_path / "steps.json.xz") == whole


@pytest.mark.parametrize("command", ["hold", "replay"])
def test_what_is_no_recording_is_refused_in_a_sentence(command: str, tmp_path: Path) -> None:
    (tmp_path / "history.json").write_text("{}")
    with lzma.open(tmp_path / "older.json.xz", "wt") as file:  # a step had one field more
        json.dump({"logs": {"log": [[None] * (len(Step._fields) + 1)]}, "looks": []}, file)
    for name in ("history.json", "older.json.xz"):
        told = CliRunner().invoke(cli, [command, str(tmp_path / name)])
        assert (told.exit_code, "is no recording of steps, as a seed leaves it" in told.output) == (1, True)


def test_a_replay_until_a_state_that_nobody_made_is_refused(whole: Recording, tmp_path: Path) -> None:
    whole.save(file := tmp_path / "steps.json.xz")
    told = CliRunner().invoke(cli, ["replay", str(file), "--until", "7@nowhere"])
    assert (told.exit_code, "no recorded step made the state '7@nowhere'" in told.output) == (1, True)


def test_a_look_is_held_before_a_later_step_that_finds_a_lock_ended(begun: Callable[[], Course]) -> None:
    course = begun()
    course.node.up()
    course.step("grab_take", "grab\x1freport\x1f1", "one", "of one", 500, LIFETIME, KEEP, 3, "{}")
    course.look()
    now = course.recording.looks[0].time
    with course.server.client() as client:
        wait_until(lambda: client.time() > ((now + 1_000_000) // 1_000_000, now % 1_000_000))
    course.step("jobs_read", "state", "nobody")
    recording = course.end()
    del recording.looks[-1]
    held = hold(recording, PREFIX)
    assert (held.wrong, held.looks) == ([], 1)


def test_what_a_server_lost_is_a_branch_and_is_held_too(begun: Callable[[], Course]) -> None:
    course = begun()
    course.node.up()
    course.node.submit("a", job_id="kept")
    kept = course.keep()
    course.node.submit("a", job_id="lost")
    course.go_back(kept)
    assert course.node.submit("a", job_id="after").position == 1, "another stood there, and is lost"
    assert course.take().id == "kept"
    recording = course.end()
    held = hold(recording, PREFIX)
    assert (held.wrong, held.branches) == ([], 2)
    assert [step.args[0] for step in path_to(recording, PREFIX, recording.looks[-1].state)][1:] == [
        "kept", "after", "one",
    ]  # fmt: skip


def test_a_store_that_was_emptied_begins_anew(begun: Callable[[], Course]) -> None:
    course = begun()
    course.node.up()
    course.node.submit("a", job_id="gone")
    fence = course.take().fence
    with course.server.client() as client:
        client.flushdb()
    course.node.up()
    course.node.submit("a", job_id="new")
    assert course.take().fence == fence + 1, "the server remembers its last fence, and its clock is far behind that"
    recording = course.end()
    assert (wrong(recording), hold(recording, PREFIX).branches) == ([], 2)


def test_a_node_that_ends_and_is_registered_again_gets_nothing(begun: Callable[[], Course]) -> None:
    course = begun()
    course.node.up()
    course.node.submit("a", job_id="j")
    about: Any = {"app": "shop", "capacity": 4, "ordinary": 0, "load": 0, "ending": 1}
    course.node.nodes.register("one", "a", about, ["app shop", "queue celery"], ["shop.work"])
    assert course.node.take(bell=course.bell()) is None
    assert wrong(course.end()) == []


def test_a_wake_up_that_no_step_sent_gets_nothing(begun: Callable[[], Course]) -> None:
    course = begun()
    course.node.up()
    course.node.submit("a", job_id="j")
    for number, bell in enumerate(("{rubbish", "9" * 300, "²-1", "1-1")):
        assert course.step("runner_take", "one", "a", f"r{number}", bell, f"t{number}", TTL) is None
    assert course.take().id == "j"
    assert wrong(course.end()) == []


def test_a_line_that_was_cut_off_is_no_step(whole: Recording) -> None:
    (log,) = whole.logs
    text = Path(log).read_bytes()
    assert len(list(steps_of(text))) == len(whole.logs[log])
    last = text.rindex(b" STEP ")
    assert len(list(steps_of(text[: last + 100]))) == len(whole.logs[log]) - 1
    again = text[: last + 100] + b"\n77:M 1 Jan 2026 00:00:00.000 # Server started\n" + text
    assert len(list(steps_of(again))) == 2 * len(whole.logs[log]) - 1


# Twenty recordings of what no server did: each is a change of the steps, by the name of one and its number among these.


def at(steps: list[Step], name: str, number: int = 0) -> int:
    return [place for place, step in enumerate(steps) if step.name == name][number]


def answers(name: str, number: int, reply: Any) -> Callable[[list[Step]], None]:
    def alter(steps: list[Step]) -> None:
        place = at(steps, name, number)
        assert steps[place].reply != reply
        steps[place] = steps[place]._replace(reply=reply)

    return alter


def changed(name: str, number: int, change: Callable[[Any], Any]) -> Callable[[list[Step]], None]:
    """A part of an answer."""

    def alter(steps: list[Step]) -> None:
        place = at(steps, name, number)
        reply = deepcopy(steps[place].reply)
        change(reply)
        assert reply != steps[place].reply
        steps[place] = steps[place]._replace(reply=reply)

    return alter


def left_out(name: str, number: int = 0) -> Callable[[list[Step]], None]:
    """The server did not do it, and nobody noticed."""

    def alter(steps: list[Step]) -> None:
        place = at(steps, name, number)
        gone = steps.pop(place)
        for later, step in enumerate(steps[place:], place):
            before = gone.before if step.before == gone.after else step.before
            steps[later] = step._replace(before=before, after=before if step.after == step.before else step.after)

    return alter


def exchanged(name: str, number: int = 0, by: int = 1) -> Callable[[list[Step]], None]:
    """With the one that came so much later; the times and the states stay where they were."""

    def alter(steps: list[Step]) -> None:
        one = at(steps, name, number)
        other, what = one + by, ("name", "args", "reply")
        told = {name: getattr(steps[one], name) for name in what}
        steps[one] = steps[one]._replace(**{name: getattr(steps[other], name) for name in what})
        steps[other] = steps[other]._replace(**told)

    return alter


DEVIATIONS: dict[str, Callable[[list[Step]], None]] = {
    "a submit says that it stands further back": changed("job_submit", 1, lambda reply: reply.__setitem__(1, "2")),
    "a fence is one less": changed("runner_take", 0, lambda reply: reply.__setitem__(6, str(int(reply[6]) - 1))),
    "a claim tells of another attempt": changed("runner_take", 1, lambda reply: reply.__setitem__(4, "1")),
    "a claim gives another job": changed("runner_take", 0, lambda reply: reply.__setitem__(0, "ab")),
    "an outcome is refused": changed("job_finish", 0, lambda reply: reply.__setitem__(0, "lost")),
    "a renewal is refused": answers("lease_renew", 0, [""]),
    "a waiter has its lock too early": answers("lock_wait", 0, ["running", "1"]),
    "two have the same instance": changed("grab_take", 1, lambda reply: reply.__setitem__(0, "won")),
    "a tick is sent twice": changed("tick_take", 0, lambda reply: reply.__setitem__(0, "over")),
    "a sweep did nothing": changed("sweep", 0, lambda reply: reply.__setitem__(0, "0")),
    "a submit was not done": left_out("job_submit", 3),
    "an end was not done": left_out("job_finish", 2),
    "a pause was not done": left_out("lane_pause"),
    "a hand-over was not done": left_out("job_lose"),
    "a lock was not released": left_out("lock_release", 1),
    "two submits came the other way round": exchanged("job_submit", 0),
    "a move came before what it moved": exchanged("job_submit", 8),
    "an order came after its flush": exchanged("sorter_add", 1, by=2),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_a_deviation_of_the_steps_is_found(whole: Recording, name: str) -> None:
    recording = deepcopy(whole)
    (steps,) = recording.logs.values()
    DEVIATIONS[name](steps)
    assert hold(recording, PREFIX).at, f"{name}: nobody saw it"


KEYS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a job loses its place": lambda keys: keys["line:wide"].__delitem__(slice(2)),
    "a lock is another's": lambda keys: keys["lock:door"].__setitem__(0, "of l2 9999999999999"),
    "a count is another": lambda keys: keys["counts"].__setitem__(1, "7"),
    "a key is gone": lambda keys: keys.pop("line:wide"),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_that_something_else_changed_is_found(whole: Recording, name: str) -> None:
    recording, found = deepcopy(whole), 0
    for place, look in enumerate(recording.looks):
        keys = {row[0]: row[3] for row in look.rows}
        try:
            KEYS[name](keys)
        except (KeyError, IndexError):
            continue
        rows = [[key, kind, ttl, keys[key]] for key, kind, ttl, _ in look.rows if key in keys]
        recording.looks[place], found = look._replace(rows=rows), found + 1
    assert found
    assert len(wrong(recording)) >= found
