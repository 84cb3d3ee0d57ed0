"""The operations that a history of the laboratory holds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from proof.checkers import as_a_lane, as_a_lock, judge, judgements
from proof.history import History
from proof.linear import reading, search
from proof.linear.judging import ALL, counted, decisions
from proof.linear.search import Answer
from proof.planted import WRONG, Script
from proof.seeds import RED
from tests.harness.each import each

# These deceive all other judges.
ONLY = {
    "as_a_lane": [
        "one that overtook another, was killed, and ran again in its place", "one between two attempts of another",
        "one that ended well, and is at work again",
    ],
    "as_a_grab": [
        "a winner that is refused, though nobody else won", "a second winner with an older fence",
    ],
    "as_a_quota": ["three of two, the third of a process that was late before, and is not now"],
}  # fmt: skip


OTHERWISE = {"329.json.xz", "353.json.xz"}  # a line that 200,000 configurations do not decide; a grab with two winners


def wrong(history: History) -> set[str]:
    return {name for name, places in judge(history).items() if places}


@each(lambda: [(judge_, name) for judge_, names in ONLY.items() for name in names], lambda one: one[1])
def test_some_wrong_histories_are_seen_by_this_judge_alone(planted: tuple[str, str]) -> None:
    judge_, name = planted
    assert wrong(WRONG[judge_][name]) == {judge_}


@each(lambda: sorted(path for path in RED.glob("[0-9]*.json.xz") if path.name not in OTHERWISE))
def test_the_recorded_histories_are_decided_and_linearizable(path: Path) -> None:
    history = History.load(path)
    for objects in ALL:
        for one, decision in decisions(history, objects):
            assert decision.answer is Answer.YES, (one.name, decision)
    decided, undecided = counted(history)
    assert decided > 500
    assert not undecided


def test_a_recorded_grab_with_two_winners_is_refused() -> None:
    assert wrong(History.load(RED / "353.json.xz")) == {"one_winner", "as_a_grab"}


def test_an_object_that_is_not_decided_is_wrong_and_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST", 1_000)
    script = Script()
    for number in range(12):
        script.note("invoke", "submit", f"c/{number}", job=f"j{number}", kind="plain", keys=["k"])
    for number in range(12):
        script.note("ok", "submit", f"c/{number}", job=f"j{number}", kind="plain", keys=["k"], effects=[])
    history = script.history()
    (found,) = [one for one in as_a_lane(history) if one]
    assert found.text.startswith("lane k: not decided at join")
    assert counted(history) == (0, 24)


def test_what_stood_in_a_line_before_a_loss_is_not_known_after_it() -> None:
    def lost(script: Callable[[Script], Script]) -> set[str]:
        begun = script(Script().submit("a", "k").submit("b", "k"))
        return wrong(begun.wait(60).run("b", 1, "k").run("a", 2, "k").is_("a").is_("b").history())

    assert "as_a_lane" in lost(lambda script: script)
    assert "as_a_lane" in lost(lambda script: script.fault("stop", 1, halts=True))
    assert "as_a_lane" not in lost(lambda script: script.fault("loss", 1, halts=True, loses=5))


def test_what_comes_after_a_loss_is_judged_again() -> None:
    script = Script().submit("a", "k").fault("loss", 1, halts=True, loses=5).wait(60).submit("b", "l").submit("c", "l")
    history = script.run("c", 1, "l").run("b", 2, "l").is_("b").is_("c").history()
    assert [one.text.partition(":")[0] for one in as_a_lane(history) if one] == ["lane l"]


def test_a_claim_is_after_what_its_process_noted_before() -> None:
    script = Script().hold("a", 1, "k", "n1/1").hold("x", 9, "other", "n1/2").end_in("n1/2", "x", 9)
    history = script.hold("b", 2, "k", "n1/2").wait(9).end_in("n1/1", "a", 1).end_in("n1/2", "b", 2).history()
    assert [one.text.partition(":")[0] for one in as_a_lock(history) if one] == ["lock k"]
    (lock,) = [one for one in reading.locks(history) if one.name == "lock k"]
    assert [one.call for one in lock.operations if one.given == (2,) and one.name == "acquire"] == [2]


def test_a_cancelled_job_makes_way_at_any_time_and_another_does_not() -> None:
    def second_first(kind: str) -> set[str]:
        script = Script().submit("a", "k", kind=kind).submit("b", "k").run("b", 1, "k")
        return wrong(script.is_("a", "cancelled" if kind == "cancelled" else "succeeded").is_("b").history())

    assert "as_a_lane" not in second_first("cancelled")
    assert "as_a_lane" in second_first("plain")


def test_each_operation_that_was_decided_counts_as_checked() -> None:
    history = Script().submit("a", "k").run("a", 1, "k").is_("a").history()
    assert judgements(history)["as_a_lane"].checked == counted(history)[0] >= 3
