"""The documents' steps as a model of their own predicts them, on a real Redis."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from coordinator.settings import Settings
from coordinator.store import library
from coordinator.store.client import Store
from proof.steps.documents import Documents
from proof.steps.playing import Deviation
from proof.steps.recording import HERE, Look, Recording, Step, steps_of
from tasks.documents.library import OWN, text_of
from tests.harness.functions import ALL
from tests.harness.redis import RedisServer

NAME = "list"
STEPS = ("clock", "document")

# The server's clock is ahead by so many seconds, and where it says which process it is, it says this.
AHEAD = """
local function server() return redis end -- while the library is loaded it is another than in a call
local redis = (function()
  local ahead, process
  local function call(command, ...)
    local reply = server().call(command, ...)
    if command == 'TIME' then reply[1] = string.format('%d', reply[1] + ahead) end
    if command == 'INFO' and process then reply = string.gsub(reply, 'run_id:%x+', 'run_id:' .. process) end
    return reply
  end
  local function register(function_)
    local callback = function_.callback
    function_.callback = function(keys, args)
      ahead = tonumber(server().call('GET', keys[1] .. 'ahead') or 0)
      process = server().call('GET', keys[1] .. 'process')
      return callback(keys, args)
    end
    return server().register_function(function_)
  end
  return {
    call = call,
    pcall = function(...) return server().pcall(...) end,
    log = function(...) return server().log(...) end,
    LOG_WARNING = server().LOG_WARNING,
    register_function = register,
    sha1hex = function(text) return server().sha1hex(text) end,
  }
end)()
"""


class Recorded:
    """An installation whose steps are recorded. `looks`: at all keys behind each of them."""

    def __init__(self, server: RedisServer) -> None:
        recorder = (HERE / "recorder.lua").read_text()
        rules = (*library.RULES[:-1], OWN[0], library.RULES[-1])
        own = library.assemble(text_of, AHEAD + recorder, "documents_", rules, STEPS)
        self._log, self._since = server.log, server.log.stat().st_size
        self.store = Store(Settings(url=server.url(0), prefix=server.fresh_prefix()), None, None, own)
        self.client, self.prefix = self.store._client, self.store.prefix
        self.looks: list[Look] = []
        self._ahead = 0

    def step(self, name: str, *args: object) -> Any:
        reply = self.store.step(name, *args)
        self.looks.append(self.look())
        return reply.decode() if isinstance(reply, bytes) else reply

    def look(self) -> Look:
        recording = Recording()
        recording.look(self.client, self.prefix)
        (look,) = recording.looks
        return look._replace(time=look.time + self._ahead * 1_000_000)

    def ask(self, id: str, fence: int | str = "", /, read: str = "", follow: bool = True, **values: object) -> str:
        changes = [[entry, json.dumps(value), read] for entry, value in values.items()]
        update = {"id": id, "fence": str(fence), "changes": changes, "follow": follow, "who": "me", "why": "ü"}
        return str(self.step("document_ask", NAME, json.dumps(update, ensure_ascii=False)))

    def pass_by(self, seconds: int) -> None:
        self._ahead = int(self.client.incrby(self.prefix + "ahead", seconds))
        for name in self.client.scan_iter(self.prefix + "*", 1000):
            if (ttl := self.client.pttl(name)) >= 0:
                self.client.pexpire(name, ttl - seconds * 1000)

    def members(self, *names: str) -> list["Member"]:
        """The replica set; the first grace is over."""
        found = [Member(self, name) for name in names]
        agree(*found)
        self.pass_by(2)
        return found

    @contextmanager
    def heard(self, *members: str) -> Iterator[None]:
        """Their own channels are."""
        with self.client.pubsub() as news:
            news.subscribe(*(self.store.key("member", NAME, member) for member in members))
            for _ in members:
                news.get_message(timeout=5)
            yield

    def steps(self) -> list[Step]:
        log = self._log.read_bytes()[self._since :]
        return [step for step in steps_of(log) if step.prefix == self.prefix]

    def close(self) -> None:
        for name in self.client.scan_iter(f"*{self.prefix}*", 1000):
            self.client.delete(name)
        self.store.close()


@dataclass
class Member:
    """It does what Redis tells it; `sort`: the checksums of what it prepares begin so."""

    recorded: Recorded
    name: str
    sort: str = "sum"
    version: tuple[int, str] = (0, "")
    ready: tuple[int, str] = (0, "")

    def report(self) -> tuple[str, list[str]]:
        """What it is told to do, and who is put out."""
        disk = *self.version, *self.ready
        what, at, sha, following, _, out = self.recorded.step("document_report", NAME, self.name, *disk, 2000)
        if what == b"prepare":
            self.ready = int(following), f"{self.sort}{int(following)}"
        elif what in (b"commit", b"behind"):
            self.version, self.ready = (int(at), sha.decode()), (0, "")
        return what.decode(), [name.decode() for name in out]

    def restore(self, version: int, upon: int, **entries: str) -> int:
        words = [word for pair in entries.items() for word in pair]
        args = version, f"sum{version}", upon, f"sum{upon}"
        return int(self.recorded.step("document_restore", NAME, self.name, *args, *words))

    def leave(self, why: str = "") -> int:
        return int(self.recorded.step("document_leave", NAME, self.name, why))


def agree(*members: Member) -> None:
    while {member.report()[0] for member in members} != {"kept"}:
        pass


@pytest.fixture
def recorded(redis_server: RedisServer) -> Iterator[Recorded]:
    found = Recorded(redis_server)
    yield found
    found.close()


def as_predicted(recorded: Recorded) -> Documents:
    """Each answer, and all keys behind it."""
    player = Documents()
    for step, look in zip(recorded.steps(), recorded.looks, strict=True):
        player.play(step)
        assert player.differences(look) == []
    return player


def test_a_version_is_committed_once_all_members_have_it(recorded: Recorded) -> None:
    a, b = recorded.members("a", "b")
    assert recorded.ask("u", 5, x=1, y=None) == "asked"
    with recorded.heard("a", "b"):
        agree(a)
        agree(b, a)
    assert recorded.ask("u", 5, x=1, y=None) == f"committed {a.version[0]}"
    recorded.ask("v", 6, follow=False, y=2)
    agree(a, b)
    assert as_predicted(recorded).documents[NAME].entries == {"x": "5 1", "y": "6 2"}


def test_updates_that_wait_become_one_version_but_for_those_that_are_refused(recorded: Recorded) -> None:
    (a,) = recorded.members("a")
    recorded.ask("before", 5, x=1, y=1)
    asked: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "fenced": ((6,), {"x": 2}),
        "late": ((5,), {"x": 3, "z": 3}),
        "free": ((), {"x": 4}),
        "misread": ((7,), {"read": "0" * 40, "y": 5}),
        "made": ((5,), {"y": 1}),
    }
    for _ in range(2):
        for name, (fence, about) in asked.items():
            recorded.ask(name, *fence, **about)
        agree(a)
    entries = as_predicted(recorded).documents[NAME].entries
    first = a.version[0] - 1
    assert entries == {"x": "6 4", "y": "5 1"}
    outcomes = {name: recorded.ask(name, *fence, **about) for name, (fence, about) in asked.items()}
    assert outcomes.pop("made") == recorded.ask("before")
    assert outcomes == {
        "fenced": f"committed {a.version[0]}",
        "late": "stale 6 x",
        "free": f"committed {a.version[0]}",
        "misread": "changed 5 y",
    }, first


def test_a_silent_member_is_put_out_after_a_while_and_one_that_is_gone_at_once(recorded: Recorded) -> None:
    a, b, _ = recorded.members("a", "b", "c")
    with recorded.heard("a", "b"):
        recorded.ask("u", 5, x=1)
        a.report()
        assert a.report() == ("kept", ["c"])
        recorded.pass_by(2)
        assert a.report() == ("kept", ["b"])
    agree(a, b)
    assert {*as_predicted(recorded).reasons} == {f"{NAME}:c"}


def test_where_nobody_reported_for_long_the_time_of_the_silent_begins_anew(recorded: Recorded) -> None:
    a, _ = recorded.members("a", "b")
    with recorded.heard("a", "b"):
        recorded.ask("u", 5, x=1)
        agree(a)
        for seconds, out in ((4, []), (1, []), (2, ["b"])):
            recorded.pass_by(seconds)
            assert a.report()[1] == out
    as_predicted(recorded)


def test_the_members_with_another_checksum_than_most_are_put_out(recorded: Recorded) -> None:
    a, b, c = recorded.members("a", "b", "c")
    c.sort = "other"
    with recorded.heard("a", "b", "c"):
        recorded.ask("u", 5, x=1)
        for member in (c, a, b, c, a, b):
            member.report()
    assert as_predicted(recorded).documents[NAME].members == {"a", "b"}
    agree(a, b)
    b.sort = "less"
    with recorded.heard("a", "b"):
        recorded.ask("v", 6, x=2)
        for member in (a, b, a, b):
            member.report()
    assert as_predicted(recorded).documents[NAME].members == {"b"}


def test_a_member_that_leaves_is_waited_for_no_more(recorded: Recorded) -> None:
    a, b = recorded.members("a", "b")
    with recorded.heard("a", "b"):
        recorded.ask("u", 5, x=1)
        agree(a)
        assert (b.leave("it cannot write its disk"), b.leave()) == (1, 0)
    assert a.report()[0] == "commit"
    assert as_predicted(recorded).reasons[f"{NAME}:b"][0] == "it cannot write its disk"


def test_where_nobody_keeps_it_a_version_is_committed_a_while_later(recorded: Recorded) -> None:
    recorded.ask("u", 5, x=1)
    recorded.pass_by(2)
    assert recorded.ask("u", 5, x=1) == "asked"
    recorded.pass_by(1)
    assert recorded.ask("u", 5, x=1).startswith("committed")
    a = Member(recorded, "a")
    assert a.report()[0] == "behind"
    a.version = a.version[0], "first"
    agree(a)
    assert as_predicted(recorded).documents[NAME].sha == "first"


def test_a_member_restores_what_redis_lost(recorded: Recorded) -> None:
    a, b = recorded.members("a", "b")
    recorded.ask("u", 5, x=1, y=1)
    agree(a, b)
    at = a.version[0]
    recorded.ask("v", 6, x=2)
    a.report()
    recorded.ask("w", 7, x=3)
    a.version = at + 10**9, f"sum{at + 10**9}"
    assert a.report()[0] == "ahead"
    assert a.restore(a.version[0], a.version[0], x="6 2", y="5 1", z="5 0") == 1
    assert a.restore(a.version[0], a.version[0], x="6 2") == 0
    for _ in range(2):
        recorded.ask("w", 7, x=3)
        agree(a)
        recorded.pass_by(2)
    b.version, b.ready = a.version, (a.version[0] + 10**9, "sum")
    assert (b.report()[0], b.restore(b.ready[0], a.version[0], x="7 4")) == ("ahead", 1)
    recorded.step("fence_next")
    as_predicted(recorded)


def test_no_version_begins_while_another_process_of_the_server_is_new(recorded: Recorded) -> None:
    (a,) = recorded.members("a")
    recorded.client.set(recorded.prefix + "process", "abc")
    recorded.ask("u", 5, x=1)
    assert a.report()[0] == "kept"
    recorded.pass_by(2)
    assert a.report()[0] == "prepare"
    as_predicted(recorded)


def test_outcomes_and_reasons_are_forgotten_after_an_hour(recorded: Recorded) -> None:
    a, b = recorded.members("a", "b")
    b.leave("its disk is full")
    recorded.ask("u", 5, x=1)
    agree(a)
    recorded.pass_by(3601)
    assert recorded.ask("u", 5, x=2) == "asked"
    player = as_predicted(recorded)
    assert ({*player.outcomes}, player.reasons) == ({"u"}, {})


def test_what_the_permanent_store_has_is_noted_once(recorded: Recorded) -> None:
    (a,) = recorded.members("a")
    recorded.ask("u", 5, x=1, y=1)
    agree(a)
    at = a.version[0]
    followed = [recorded.step("document_followed", NAME, "x", version) for version in (at - 1, at, at)]
    notes = (("", "1"), ("0", "2"), ("1", "2"), ("1", "2"), ("2", ""))
    noted = [recorded.step("document_note", NAME, "about", *note) for note in notes]
    assert (followed, noted) == ([0, 1, 0], [1, 0, 1, 1, 1])
    as_predicted(recorded)


# What is found


@pytest.fixture(scope="module")
def course(redis_server: RedisServer) -> Iterator[Recorded]:
    """All steps of documents, each with all its answers."""
    found = Recorded(redis_server)
    a, b, c = found.members("a", "b", "c")
    with found.heard("a", "b"):
        found.ask("u", 5, x=1, y=1)
        agree(a, b)
        found.ask("v", 6, x=2)
        found.ask("late", 5, x=3)
        agree(b, a)
        found.ask("late", 5, x=3)
    c.report()
    found.step("document_followed", NAME, "x", a.version[0])
    found.step("document_note", NAME, "about", "", "1")
    c.leave("its disk is full")
    b.restore(a.version[0] + 10**9, a.version[0], x="6 2", y="5 1", z="4 0")
    found.ask("w", 7, x=3)
    found.pass_by(2)
    b.version = a.version[0] + 10**9, f"sum{a.version[0] + 10**9}"
    b.report()
    b.report()
    found.ask("waits", 8, x=3)
    found.step("fence_next")
    found.step("clock_read")
    yield found
    found.close()


def test_the_course_has_each_step_and_each_answer(course: Recorded) -> None:
    as_predicted(course)
    steps = course.steps()
    assert {step.name for step in steps} == {step.name for step in ALL if step.file in STEPS}
    told = {step.reply[0][0] for step in steps if step.name == "document_report"}
    assert told == {"prepare", "kept", "commit", "behind"}


def altered(value: Any) -> Iterator[Any]:
    """With one part of it changed."""
    if isinstance(value, list):
        yield [*value, "more"]
        for i, part in enumerate(value):
            yield from ([*value[:i], other, *value[i + 1 :]] for other in altered(part))
    else:
        yield f"{value}0"


def found_in(steps: list[Step], place: int, step: Step) -> bool:
    """Where this stands there in place of the recorded one."""
    player = Documents()
    for one in steps[:place]:
        player.play(one)
    try:
        player.play(step)
    except Deviation:
        return True
    return False


def test_each_altered_answer_is_found(course: Recorded) -> None:
    steps = course.steps()
    for place, step in enumerate(steps):
        for reply in altered(step.reply[0]):
            assert found_in(steps, place, step._replace(reply=[reply])), (step, reply)
