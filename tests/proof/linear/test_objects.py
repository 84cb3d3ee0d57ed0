"""What each object does, one thing at a time: each rule refuses the sequence that breaks it."""

from collections.abc import Hashable

from proof.linear.objects import GRAB, LANE, LOCK, quota
from proof.linear.search import Answer, Operation, Sequential, decide

Step = tuple[Hashable, ...]


def one_by_one(sequential: Sequential, *steps: Step, answers: dict[int, bool] | None = None) -> bool:
    """True if the object may do these, one after the other. `answers`: what some of them answered, by their places."""
    operations = [
        Operation(2 * place, 2 * place + 1, str(name), given, (answers or {}).get(place))
        for place, (name, *given_) in enumerate(steps)
        for given in [tuple(given_)]
    ]
    return decide(sequential, operations).answer is Answer.YES


def test_a_lock_has_one_holder_and_greater_fences() -> None:
    assert one_by_one(LOCK, ("acquire", 1), ("release", 1), ("acquire", 2), answers={1: True})
    assert not one_by_one(LOCK, ("acquire", 1), ("acquire", 2))
    assert not one_by_one(LOCK, ("acquire", 2), ("release", 2), ("acquire", 1), answers={1: True})
    assert not one_by_one(LOCK, ("acquire", 2), ("release", 2), ("acquire", 2), answers={1: True})


def test_only_the_token_of_its_holder_releases_a_lock_and_checks_it() -> None:
    assert one_by_one(
        LOCK, ("acquire", 1), ("lapse", 1), ("acquire", 2), ("release", 1), ("check", 2), answers={3: False, 4: True}
    )
    assert not one_by_one(LOCK, ("acquire", 1), ("lapse", 1), ("acquire", 2), ("release", 1), answers={3: True})
    assert not one_by_one(LOCK, ("acquire", 1), ("release", 1), ("check", 1), answers={1: True, 2: True})
    assert not one_by_one(
        LOCK, ("acquire", 1), ("lapse", 1), ("acquire", 2), ("release", 1), ("acquire", 3), answers={3: False}
    )


def test_a_lease_that_did_not_end_by_itself_keeps_the_next_out() -> None:
    operations = [
        Operation(0, 1, "acquire", (1,)),
        Operation(2, 3, "acquire", (2,)),
        Operation(4, None, "lapse", (1,), once=True),
    ]
    assert decide(LOCK, operations).answer is Answer.NO
    operations[2] = operations[2]._replace(call=2)
    assert decide(LOCK, operations).answer is Answer.YES


def test_an_instance_is_won_once_and_again_only_by_its_winner_or_after_its_lease() -> None:
    assert one_by_one(GRAB, ("win", "a", 1), ("win", "a", 1), ("complete", "a", 1), answers={2: True})
    assert one_by_one(
        GRAB, ("win", "a", 1), ("lapse", "a", 1), ("win", "b", 2), ("complete", "a", 1), answers={3: False}
    )
    assert not one_by_one(GRAB, ("win", "a", 1), ("win", "b", 2))
    assert not one_by_one(GRAB, ("win", "a", 2), ("lapse", "a", 2), ("win", "b", 1))


def test_nobody_wins_what_is_complete_and_its_winner_alone_completes_it() -> None:
    assert not one_by_one(GRAB, ("win", "a", 1), ("complete", "a", 1), ("win", "b", 2), answers={1: True})
    assert not one_by_one(GRAB, ("win", "a", 1), ("complete", "b", 1), answers={1: True})
    assert not one_by_one(GRAB, ("win", "a", 1), ("complete", "a", 1), answers={1: False})


def test_a_lane_goes_in_the_order_of_its_line_one_at_a_time() -> None:
    line: list[Step] = [("join", "a", 0), ("join", "b", 0)]
    assert one_by_one(LANE, *line, ("start", "a", 1), ("end", "a", 1, False), ("start", "b", 2))
    assert not one_by_one(LANE, *line, ("start", "b", 1))
    assert not one_by_one(LANE, *line, ("start", "a", 1), ("start", "b", 2))
    assert not one_by_one(LANE, *line, ("start", "a", 2), ("end", "a", 2, False), ("start", "b", 1))
    assert not one_by_one(LANE, ("start", "a", 1))


def test_a_greater_priority_passes_those_that_wait_and_not_one_that_has_started() -> None:
    line: list[Step] = [("join", "a", 0), ("join", "b", 0)]
    urgent: Step = ("join", "c", 9)
    assert one_by_one(LANE, *line, urgent, ("start", "c", 1), ("end", "c", 1, False), ("start", "a", 2))
    assert not one_by_one(LANE, *line, urgent, ("start", "a", 1))
    started: list[Step] = [*line, ("start", "a", 1), urgent, ("lapse", "a", 1)]
    assert one_by_one(LANE, *started, ("start", "a", 2), ("end", "a", 2, False), ("start", "c", 3))
    assert not one_by_one(LANE, *started, ("start", "c", 2))


def test_who_is_to_run_again_keeps_the_lane() -> None:
    started: list[Step] = [("join", "a", 0), ("join", "b", 0), ("start", "a", 1)]
    assert one_by_one(
        LANE, *started, ("end", "a", 1, True), ("start", "a", 2), ("end", "a", 2, False), ("start", "b", 3)
    )
    assert not one_by_one(LANE, *started, ("lapse", "a", 1), ("start", "b", 2))
    assert not one_by_one(LANE, *started, ("lapse", "a", 1), ("pass", "other", 2))


def test_one_that_leaves_makes_way() -> None:
    line: list[Step] = [("join", "a", 0), ("join", "b", 0)]
    assert one_by_one(LANE, *line, ("leave", "a"), ("start", "b", 1))
    assert one_by_one(LANE, *line, ("start", "a", 1), ("leave", "a"), ("start", "b", 2))
    assert not one_by_one(LANE, *line, ("leave", "b"), ("start", "b", 1))


def test_no_more_units_of_a_quota_are_used_than_there_are_and_they_come_back_once() -> None:
    two = quota(2)
    assert one_by_one(two, ("take", 1, 1), ("take", 2, 1), ("give", 1), ("take", 3, 1))
    assert not one_by_one(two, ("take", 1, 1), ("take", 2, 2))
    assert not one_by_one(two, ("take", 1, 3))
    assert not one_by_one(two, ("take", 1, 1), ("take", 2, 1), ("lapse", 1), ("give", 1), ("take", 3, 2))
