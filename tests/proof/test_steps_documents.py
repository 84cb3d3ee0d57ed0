"""The documents' steps as a model of their own predicts them, on a real Redis."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from coordinator.core.settings import Settings
from coordinator.core.store import library
from coordinator.core.store.client import Store
from proof.steps.asked import Unknown
from proof.steps.documents import Documents
from proof.steps.playing import Deviation
from proof.steps.recording import HERE, Look, Recording, Step, steps_of
from proof.steps.replay import path_to, replay
from tasks.documents.library import DECLARED, OWN, text_of
from tests.harness.functions import ALL
from tests.harness.redis import RedisServer

NAME = "list"
STEPS = ("clock", "document")

# The server's clock is the test's, in seconds, and what the server was to keep for a while ends by it: `ends` has the
# times in ms. Where the server says which process it is, it says what the test says.
CLOCK = """
local function server() return redis end -- while the library is loaded it is another than in a call
local redis = (function()
  local now, ends, process
  local function call(command, ...)
    if command == 'TIME' then return {now, '0'} end
    local key, _, word, ms = ...
    local reply = server().call(command, ...)
    if command == 'INFO' and process then reply = string.gsub(reply, 'run_id:%x+', 'run_id:' .. process) end
    if command == 'SET' and word == 'PX' and reply then
      server().call('PEXPIRE', key, 86400000)
      server().call('HSET', ends, key, now * 1000 + ms)
    end
    return reply
  end
  local function register(function_)
    local callback = function_.callback
    function_.callback = function(keys, args)
      now, process = unpack(server().call('MGET', keys[1] .. 'now', keys[1] .. 'process'))
      ends = keys[1] .. 'ends'
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
    """An installation whose steps are recorded. `looks`: at all keys, by state."""

    def __init__(self, server: RedisServer) -> None:
        recorder = (HERE / "recorder.lua").read_text()
        rules = (*library.RULES[:-1], OWN[0], library.RULES[-1])
        own = library.assemble(text_of, CLOCK + recorder, "documents_", rules, STEPS, DECLARED)
        self._log, self._since = server.log, server.log.stat().st_size
        self.store = Store(Settings(url=server.url(0), prefix=server.fresh_prefix()), None, own)
        self.client, self.prefix = self.store._client, self.store.prefix
        self.looks: dict[str, Look] = {}
        self._now = 1_800_000_000
        self.pass_by(0)

    def step(self, name: str, *args: object) -> Any:
        reply = self.store.step(name, *args)
        self._look()
        return reply.decode() if isinstance(reply, bytes) else reply

    def _look(self) -> None:
        recording = Recording()
        recording.look(self.client, self.prefix)
        (look,) = recording.looks
        self.looks[look.state] = look._replace(time=self._now * 1_000_000)

    def ask(self, id: str, fence: int | str = "", /, **about: Any) -> str:
        return str(self.step("document_ask", NAME, update(id, fence, **about)))

    def pass_by(self, seconds: int) -> None:
        self._now += seconds
        self.client.set(self.prefix + "now", self._now)
        for name, end in self.client.hgetall(self.prefix + "ends").items():
            if int(end) < self._now * 1000:
                self.client.hdel(self.prefix + "ends", name)
                self.client.delete(name)

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
                news.get_message(timeout=20)
            yield

    def steps(self) -> list[Step]:
        log = self._log.read_bytes()[self._since :]
        return [step for step in steps_of(log) if step.prefix == self.prefix]

    def close(self) -> None:
        for name in self.client.scan_iter(f"*{self.prefix}*", 1000):
            self.client.delete(name)
        self.store.close()


def update(id: str, fence: int | str, /, read: str = "", follow: bool = True, **values: object) -> str:
    changes = [[entry, json.dumps(value), read] for entry, value in values.items()]
    about = {"id": id, "fence": str(fence), "changes": changes, "follow": follow, "who": "me", "why": "ü"}
    return json.dumps(about, ensure_ascii=False)


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
    for step in recorded.steps():
        player.play(step)
        assert step.after not in recorded.looks or player.differences(recorded.looks[step.after]) == []
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
        "alike": ((6,), {"x": 2}),
        "late": ((5,), {"x": 3, "z": 3}),
        "free": ((), {"x": 4}),
        "misread": ((7,), {"read": "0" * 40, "y": 5}),
        "made": ((5,), {"y": 1}),
    }
    for _ in range(2):
        for name, (fence, about) in asked.items():
            recorded.ask(name, *fence, **about)
        agree(a)
    assert as_predicted(recorded).documents[NAME].entries == {"x": "6 4", "y": "5 1"}
    outcomes = {name: recorded.ask(name, *fence, **about) for name, (fence, about) in asked.items()}
    assert outcomes.pop("made") == recorded.ask("before")
    assert outcomes == {
        "fenced": f"committed {a.version[0]}",
        "alike": f"committed {a.version[0]}",
        "late": "stale 6 x",
        "free": f"committed {a.version[0]}",
        "misread": "changed 5 y",
    }


def test_a_version_has_as_many_updates_as_one_step_may_make(recorded: Recorded) -> None:
    (a,) = recorded.members("a")
    for number in range(258):
        recorded.store.step("document_ask", NAME, update(f"u{number}", 5 + number, x=number))
    versions = set[int]()
    while a.report()[0] != "kept":
        versions.add(a.version[0])
    assert len(versions - {0}) == 3
    as_predicted(recorded)


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
    a, b, c = recorded.members("a", "b", "c")
    with recorded.heard("a", "b", "c"):
        recorded.ask("u", 5, x=1)
        agree(a)
        agree(c)
        c.leave()
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


def test_what_lies_upon_another_state_of_the_same_version_is_no_later_one(recorded: Recorded) -> None:
    a, b = recorded.members("a", "b")
    recorded.ask("u", 5, x=1)
    agree(a, b)
    b.version, b.ready = (a.version[0], "other"), (a.version[0] + 10**9, "sum")
    assert b.restore(b.ready[0], a.version[0], x="6 1") == 1
    recorded.step("document_restore", NAME, "a", b.ready[0] + 1, "sum", b.ready[0], "other", "x", "7 1")
    b.version, b.ready = (b.ready[0], "other"), (0, "")
    assert b.report()[0] == "behind"
    as_predicted(recorded)


def test_no_version_begins_while_another_process_of_the_server_is_new(recorded: Recorded) -> None:
    (a,) = recorded.members("a")
    for process in "abc", "def":
        recorded.client.set(recorded.prefix + "process", process)
        recorded.ask("u", 5, x=1)
        recorded.pass_by(1)
        assert a.report()[0] == "kept"
    recorded.pass_by(1)
    assert a.report()[0] == "prepare"
    as_predicted(recorded)


def test_nobody_is_put_out_while_another_process_of_the_server_is_new(recorded: Recorded) -> None:
    a, _ = recorded.members("a", "b")
    with recorded.heard("a", "b"):
        recorded.ask("u", 5, x=1)
        agree(a)
    recorded.client.set(recorded.prefix + "process", "abc")
    assert a.report()[1] == a.report()[1] == []
    recorded.pass_by(2)
    assert a.report()[1] == ["b"]
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
    told = {step.reply[0] for step in steps if step.name == "document_report"}
    assert told == {"prepare", "kept", "commit", "behind"}


def test_the_steps_done_again_answer_the_same_and_leave_the_same_keys(course: Recorded, own_redis: RedisServer) -> None:
    """Whichever order a server has its members in, and though authors took their answers."""
    looks = [
        look._replace(rows=[row for row in look.rows if not row[0].startswith(("now", "answer:"))])
        for look in course.looks.values()
    ]
    for database, order in enumerate((1, -1)):
        steps = [
            step._replace(outside=step.outside[:-2] + step.outside[-2:][::order]) if gone(step) else step
            for step in course.steps()
        ]
        recording = Recording({"log": steps}, looks)
        way = path_to(recording, course.prefix, looks[-1].state)
        with redis.Redis(port=own_redis.port, db=database) as client:
            assert (len(way), [*replay(recording, course.prefix, way, client)]) == (len(looks), [])


def gone(step: Step) -> bool:
    return "c" in step.reply[-1]


def altered(value: Any) -> Iterator[Any]:
    """With one part of it changed."""
    if isinstance(value, list):
        yield [*value, "more"]
        for i, part in enumerate(value):
            yield from ([*value[:i], other, *value[i + 1 :]] for other in altered(part))
    else:
        yield f"{value}0"


def deviates(player: Documents, step: Step) -> bool:
    try:
        deepcopy(player).play(step)
    except Deviation:
        return True
    return False


def before_each(course: Recorded) -> Iterator[tuple[Documents, Step]]:
    player = Documents()
    for step in course.steps():
        yield player, step
        player.play(step)


def test_each_altered_answer_is_found(course: Recorded) -> None:
    for player, step in before_each(course):
        for reply in altered(step.reply):
            assert deviates(player, step._replace(reply=reply)), (step, reply)


def test_an_error_is_found_and_a_step_that_the_model_lacks_is_told(course: Recorded) -> None:
    for player, step in before_each(course):
        assert deviates(player, step._replace(error="ERR it failed"))
        with pytest.raises(Unknown):
            player.play(step._replace(name="document_paint"))


def test_a_publication_too_much_or_too_few_is_found(course: Recorded) -> None:
    published = 0
    for player, step in before_each(course):
        assert deviates(player, step._replace(outside=[*step.outside, "1"]))
        if counts := [told for told in step.outside if told.isdigit()]:
            published += 1
            less = [told for told in step.outside if not told.isdigit()] + counts[1:]
            assert deviates(player, step._replace(outside=less))
    assert published > 5


def test_a_step_that_does_not_look_at_what_it_goes_by_is_found(course: Recorded) -> None:
    for player, step in before_each(course):
        if step.name in ("document_ask", "document_report"):
            assert deviates(player, step._replace(outside=[told for told in step.outside if told.isdigit()])) or (
                step.name == "document_ask" and step.reply != "asked"
            )
        if step.reply[0] == "prepare":
            assert deviates(player, step._replace(time=None))


def test_a_member_is_put_out_as_gone_only_where_nobody_hears_it(course: Recorded) -> None:
    ((player, step),) = [(deepcopy(player), step) for player, step in before_each(course) if gone(step)]

    def told(*out: str) -> Step:
        return step._replace(reply=[*step.reply[:-1], [*out]])

    assert all(deviates(player, told(*out)) for out in ((), ("a",), ("b", "c")))
    for count in "0", "1":
        outside = [count if told.isdigit() else told for told in step.outside]
        assert deviates(player, step._replace(outside=outside))
    player.play(told("b"))  # in place of c: only the keys tell
    assert player.differences(course.looks[step.after])


def test_a_step_that_is_left_out_is_found_if_it_changed_anything(course: Recorded) -> None:
    def kept(look: Look) -> dict[str, Any]:
        return {name: held for name, _, _, held in look.rows if not name.startswith(("clock", "answer"))}

    changed, before = 0, dict[str, Any]()
    for player, step in before_each(course):
        look = course.looks[step.after]
        if kept(look) != before:
            changed += 1
            assert deepcopy(player).differences(look)
        before = kept(look)
    assert changed > 20


def test_each_changed_key_is_found(course: Recorded) -> None:
    seen, player = set[str](), Documents()
    for step in course.steps():
        player.play(step)
        look = course.looks[step.after]
        for i, (name, kind, ttl, held) in enumerate(look.rows):
            what, others = name.partition(":")[0], look.rows[:i] + look.rows[i + 1 :]
            if what not in ("answer", "now", "ends", "began"):
                seen.add(what)
                text = [f"{held[-1]}0", '{"a": 1}', "[]"][1 if held[-1][:1] == "{" else 2 if held[-1][:1] == "[" else 0]
                changed = [name, kind, ttl, [*held[:-1], text]]
                for rows in (others, [*others, changed], [*others, [name, kind, -1 if ttl >= 0 else 9, held]]):
                    assert player.differences(look._replace(rows=rows)) or (what == "grace" and rows[-1] == changed)
    documents = {
        "pointer",
        "document",
        "asked",
        "prepare",
        "acked",
        "replicas",
        "behind",
        "stored",
        "history",
        "server",
    }
    assert seen == documents | {"update", "out", "grace", "clock", "fence"}


def test_a_copy_of_the_player_goes_a_way_of_its_own(course: Recorded) -> None:
    steps, player, place = course.steps(), Documents(), len(course.looks) // 2
    for step in steps[:place]:
        player.play(step)
    fork = deepcopy(player)
    for step in steps[place:]:
        fork.play(step)
    for one, last in ((player, steps[place - 1]), (fork, steps[-1])):
        assert one.differences(course.looks[last.after]) == []


@pytest.mark.parametrize(
    ("late", "waits", "found"),
    [(0, False, True), (1, False, False), (50, True, False), (51, True, True)],
)
def test_a_grace_may_end_some_ms_late(recorded: Recorded, late: int, waits: bool, found: bool) -> None:
    recorded.members("a")
    recorded.ask("u", 5, x=1)
    *before, asked = recorded.steps()
    player = Documents()
    for step in before:
        player.play(step)
    at = (player.documents[NAME].grace[0] + late) * 1000
    begins, waiting = asked._replace(begun=at, time=at), asked._replace(begun=at, time=None, outside=asked.outside[:1])
    assert deviates(player, waiting if waits else begins) == found
