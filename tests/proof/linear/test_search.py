"""The search for an order of operations that overlap, by the examples of the papers that it follows."""

import random

import pytest

from proof.linear.objects import QUEUE, register
from proof.linear.search import Answer, Operation, Sequential, decide
from tests.harness.each import each

REGISTER = register(0)


def history(*lines: str) -> list[Operation]:
    """Of lines as Herlihy and Wing write them: `A enqueue x` calls, `A ok` or `A ok x` returns to the same process."""
    operations: list[Operation] = []
    calls: dict[str, int] = {}
    for place, line in enumerate(lines):
        process, what, *rest = line.split()
        if what == "ok":
            number = calls.pop(process)
            operations[number] = operations[number]._replace(back=place, answer=rest[0] if rest else None)
        else:
            calls[process] = len(operations)
            operations.append(Operation(place, None, what, tuple(rest)))
    return operations


def answer(sequential: Sequential, *lines: str) -> Answer:
    return decide(sequential, history(*lines)).answer


# After Herlihy and Wing, "Linearizability: A Correctness Condition for Concurrent Objects" (1990): the queues of their
# first figure, and registers like theirs.
QUEUES = {
    "enqueues that overlap come out either way": (
        Answer.YES,
        ("A enqueue x", "B enqueue y", "B ok", "A ok", "B dequeue", "B ok x", "A dequeue", "A ok y", "A enqueue z"),
    ),
    "the other way": (
        Answer.YES,
        ("A enqueue x", "B enqueue y", "B ok", "A ok", "B dequeue", "B ok y", "A dequeue", "A ok x", "A enqueue z"),
    ),
    "one that was enqueued later comes out first": (
        Answer.NO, ("A enqueue x", "A ok", "B enqueue y", "A dequeue", "B ok", "A ok y"),
    ),
    "a pending enqueue has taken effect": (Answer.YES, ("A enqueue x", "B dequeue", "B ok x")),
    "one item comes out twice": (
        Answer.NO,
        ("A enqueue x", "B enqueue y", "A ok", "B ok", "A dequeue", "C dequeue", "A ok y", "C ok y"),
    ),
    "one that nobody enqueued comes out": (Answer.NO, ("A enqueue x", "A ok", "B dequeue", "B ok z")),
    "a dequeue that is pending has taken the first": (
        Answer.YES, ("A enqueue x", "A ok", "A enqueue y", "A ok", "B dequeue", "A dequeue", "A ok y"),
    ),
}  # fmt: skip
REGISTERS = {
    "a read sees a write that is still open": (
        Answer.YES,
        ("A write 0", "A ok", "B write 1", "A read", "A ok 1", "C write 0", "C ok", "B ok", "B read", "B ok 0"),
    ),
    "a read after one that saw an open write sees the older value": (
        Answer.NO, ("A write 0", "A ok", "B write 1", "A read", "A ok 1", "C read", "C ok 0", "B ok"),
    ),
    "a read sees an older value than the last that was written": (
        Answer.NO, ("A write 0", "A ok", "A write 1", "A ok", "B read", "B ok 0"),
    ),
    "two reads see two open writes in different orders": (
        Answer.NO,
        ("A write 1", "B write 2", "C read", "C ok 1", "D read", "D ok 2", "C read", "C ok 1", "A ok", "B ok"),
    ),
    "a pending write was never seen": (Answer.YES, ("A write 1", "A ok", "B write 2", "A read", "A ok 1")),
    "a pending write was seen late": (
        Answer.YES, ("A write 1", "A ok", "B write 2", "A read", "A ok 1", "A read", "A ok 2"),
    ),
}  # fmt: skip


@each(lambda: QUEUES.items(), lambda one: one[0])
def test_a_queue_of_the_paper_is_judged_as_the_paper_does(example: tuple[str, tuple[Answer, tuple[str, ...]]]) -> None:
    expected, lines = example[1]
    assert answer(QUEUE, *lines) == expected


@each(lambda: REGISTERS.items(), lambda one: one[0])
def test_a_register_of_the_paper_is_judged_as_the_paper_does(
    example: tuple[str, tuple[Answer, tuple[str, ...]]],
) -> None:
    expected, lines = example[1]
    assert answer(REGISTER, *lines) == expected


def brute(sequential: Sequential, operations: list[Operation]) -> bool:
    """Wing and Gong's search as they wrote it: try each operation that none precedes, and what is left after it."""

    def fits(state: object, left: frozenset[int]) -> bool:
        backs = [back for one in left if (back := operations[one].back) is not None]
        if not backs:
            return True
        first = [one for one in left if operations[one].call <= min(backs)]
        return any(fits(after, left - {one}) for one in first for after in sequential.step(state, operations[one]))

    return fits(sequential.start, frozenset(range(len(operations))))


def drawn(chance: random.Random, *words: tuple[str, ...]) -> list[str]:
    """A history of three processes; what is answered is drawn, too. Some calls stay open."""
    lines: list[str] = []
    opened: dict[str, str] = {}
    for _ in range(chance.randrange(6, 15)):
        process = chance.choice("ABC")
        if process in opened:
            word = opened.pop(process)
            lines.append(f"{process} ok" if len(word.split()) > 1 else f"{process} ok {chance.choice('xy')}")
        else:
            opened[process] = " ".join(chance.choice(words))
            lines.append(f"{process} {opened[process]}")
    return lines


@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_the_plain_search_on_drawn_histories(seed: int) -> None:
    chance = random.Random(seed)
    seen = set()
    for number in range(250):
        of_queue = bool(number % 2)
        words = (
            [("enqueue", "x"), ("enqueue", "y"), ("dequeue",)]
            if of_queue
            else [("write", "x"), ("write", "y"), ("read",)]
        )
        sequential = QUEUE if of_queue else register("x")
        operations = history(*drawn(chance, *words))
        fits = decide(sequential, operations).answer is Answer.YES
        assert fits == brute(sequential, operations), operations
        seen.add((of_queue, fits))
    assert len(seen) == 4


def test_the_operation_by_whose_return_no_order_is_left_is_named() -> None:
    decision = decide(REGISTER, history("A write 1", "A ok", "B read", "B ok 0", "A read", "A ok 1"))
    assert (decision.answer, decision.at and decision.at.back) == (Answer.NO, 3)


def test_beyond_its_bound_it_says_that_it_has_not_decided() -> None:
    writers = [Operation(0, 100, "write", (number,)) for number in range(12)]
    reads = [Operation(101, 102, "read", (), 99)]
    assert decide(REGISTER, writers + reads, most=1_000).answer is Answer.UNKNOWN
    assert decide(REGISTER, writers[:4] + reads, most=1_000).answer is Answer.NO


def test_a_pending_operation_that_happens_once_by_itself_costs_no_configurations() -> None:
    def step(state: object, operation: Operation) -> list[object]:
        return [operation.given[0]] if operation.name == "set" else [state] if operation.answer == state else []

    noise = [Operation(0, None, "set", (number,), once=True) for number in range(30)]
    reads = [Operation(2 * number, 2 * number + 1, "see", (), number) for number in range(30)]
    decision = decide(Sequential(0, step), noise + reads)
    assert decision.answer is Answer.YES
    assert decision.met < 5_000
