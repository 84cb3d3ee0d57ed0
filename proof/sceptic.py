"""The blocks of docs/proof.md that `make generated` writes from runs and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from proof.checkers import CHECKERS, NOTHING
from proof.faults import FAULTS
from proof.mutants import PAGE, SURVIVES, cases, rows
from proof.planted import RIGHT, WRONG
from proof.power.cases import KINDS
from proof.power.commands import Row as PowerRow
from proof.power.commands import found as found_of_power
from proof.power.commands import red
from proof.seeds import Listed, listed
from proof.spec import check as tlc

DOCS = PAGE.parent


class Promise(NamedTuple):
    """`way`: of the nemesis. A seed counts if it had such a fault, in such a world."""

    promise: str
    fault: str
    way: str
    world: str = ""


PROMISES = [
    Promise("a job goes on elsewhere, in its place, with a greater fence", "kill -9 of any process of a node", "kill"),
    Promise("whoever stands still past its lease writes nothing more", "stopped for 1.2 to 3 leases", "stop"),
    Promise("no job is lost, none overtakes", "a node restarts, or all of them in turn, or at once", "restart"),
    Promise("all go on by themselves", "connections that are cut, slow, half-open or swallow", "cut"),
    Promise("same lines, same order, same holders", "Redis, broker or backend restarts or hangs", "server"),
    Promise("what was answered stays, what is refused is not done", "Redis, broker or backend full", "full"),
    Promise("what is refused is not done, and is asked again", "Redis refuses writes for want of replicas", "replicas"),
    Promise("what Redis kept goes on", "Redis loses its last writes, its functions, or all", "loss", "single"),
    Promise("same order in each lane, and greater fences", "Sentinel fails over, with lost writes", "loss", "sentinel"),
    Promise("same order in each lane, and greater fences", "a Cluster fails over, with lost writes", "loss", "cluster"),
    Promise("the new master's side has the greater fences", "an old master serves on", "split", "sentinel"),
    Promise("leases and retries keep their time, each tick comes once", "Redis' clock goes back or forward", "clock"),
    Promise("only Redis' clock counts", "the clocks of nodes and clients are an hour wrong, and jump", "clocks"),
    Promise("latency only", "the wake-ups of nodes are lost, late, doubled or rubbish", "wake"),
    Promise("latency only", "RabbitMQ's disk is full", "alarm", "rabbitmq"),
    Promise("the same with RabbitMQ", "all of these", "kill", "rabbitmq"),
    Promise("the same with pools of threads and of gevent", "all of these", "kill", "pools"),
    Promise("each commit is one job, in the order of commits", "relays die, stop, have no database", "kill", "outbox"),
    Promise("the same with a hundred nodes more", "a third of them dies, restarts or stands still", "kill", "swarm"),
    Promise("a version of a document is on all members or on none", "members die, hang, are full", "kill", "documents"),
]  # fmt: skip
OTHERS = (
    ("each step of a fleet does what a plain model says", "all of these", "make proof", "30"),
    ("each step does what a plain model says", "any calls in any order", "python -m proof model", "15"),
    ("no guard is there for nothing", "each guard taken out", "python -m proof mutants", "140"),
    ("a mended fault stays mended", "its guard taken out", "make proof-NAME", "1"),
    ("the judges see what is wrong", "wrong histories", "python -m proof planted", "0.1"),
    ("the design keeps what it promises", "any course of some small worlds", "python -m proof spec", "3"),
    ("what was written is whole, or refused", "a power cut tears Redis' file", "python -m proof power", "2"),
    ("the nemesis bites", "Celery and its locks under the same faults", "python -m proof peers", "5"),
)


def promises() -> str:
    lines = ["| promise | fault | command | minutes | seeds so far | result |", "|---|---|---|---|---|---|"]
    known = listed()
    for one in PROMISES:
        of = [seed for seed in known if seed.counts.get(one.way) and one.world in {"", *seed.world}]
        red = Counter(_cause(seed) for seed in of if seed.verdict != NOTHING)
        causes = ", ".join(f"{number} by {cause}" for cause, number in sorted(red.items()))
        some = f"{len(of) - red.total()} hold, [red: {causes}](#seeds-so-far)"
        result = some if red else NOTHING if of else "not run yet"
        lines.append(f"| {one.promise} | {one.fault} | `make proof` | 30 | {len(of)} | {result} |")
    wrong = f"{sum(map(len, WRONG.values()))} are called wrong, {len(RIGHT)} right ones are not"
    holds = f"{len(tlc.WHOLE)} hold, {len(tlc.GAPS)} break without a guard, as [they must](#the-specification)"
    results = (
        _held(),
        "in each run of the tests",
        *_killed(),
        wrong,
        holds,
        _powered(),
        "[what each of them loses](#beside-peers)",
    )
    for other, result in zip(OTHERS, results, strict=True):
        promise, fault, command, minutes = other
        lines.append(f"| {promise} | {fault} | `{command}` | {minutes} | | {result} |")
    return "\n".join(lines)


def _held() -> str:
    known = [seed.counts for seed in listed() if "steps" in seed.counts]
    steps, unheld = (sum(counts[what] for counts in known) for what in ("steps", "unheld"))
    return (
        f"[{steps:,} steps](#every-step) of {len(known)} seeds, {steps - unheld:,} of them predicted"
        if known
        else "not run yet"
    )


def _cause(seed: Listed) -> str:
    """The cause of a red seed: its explanation up to a colon."""
    return seed.why.partition(":")[0].removeprefix("of ") or "**nobody knows what**"


def _killed() -> Iterator[str]:
    """The killed mutants and faults in the table of docs/proof-mutants.md, as two sentences."""
    table, every = {row.about: row.killed for row in rows()}, cases()
    for what, some in (("mutants", every[: -len(FAULTS)]), ("faults", every[-len(FAULTS) :])):
        ends = [table[case.about] for case in some if table.get(case.about, "").strip(" |")]
        dead = sum(SURVIVES not in end for end in ends)
        yield f"of {len(some)} {what} [{len(ends)} were planted, {dead} killed](proof-mutants.md)"


def so_far() -> str:
    known = listed()
    if not known:
        return "None is listed yet."
    total = sum((Counter(seed.counts) for seed in known), Counter[str]())
    red = [seed for seed in known if seed.verdict != NOTHING]
    worlds = Counter(name for seed in known for name in seed.world)
    sums, of = (", ".join(f"{name} {number:,}" for name, number in sorted(one.items())) for one in (total, worlds))
    left = sorted(set(range(1, known[-1].seed)) - {seed.seed for seed in known})
    gaps = f" Not played yet: {', '.join(map(str, left))}." if left else ""
    lines = [f"{len(known)} seeds, {len(red)} of them red: {sums}. Worlds: {of}.{gaps}", ""]
    lines += [f"* Seed {one.seed} ({one.commit}): {one.verdict}. {one.why}" for one in red]
    return "\n".join(lines).rstrip()


def checkers() -> str:
    lines = ["| judge | says no to, among others |", "|---|---|"]
    for checker in CHECKERS:
        lines.append(f"| `{checker.__name__}` | {'; '.join(WRONG[checker.__name__])} |")
    return "\n".join(lines)


def specification() -> str:
    lines = ["| configuration | what is different | expected, and found | states | steps | seconds |"]
    lines.append("|---|---|---|---|---|---|")
    for world, (name, _, said, *counts) in zip(tlc.WHOLE + tlc.GAPS, tlc.kept(), strict=True):
        broken = f"`{said}` breaks" if world.breaks else said
        lines.append(f"| {name} | {world.about} | {broken} | {' | '.join(counts)} |")
    return "\n".join(lines)


def _powered() -> str:
    rows = found_of_power()
    every, wrong = sum(row.number for row in rows), sum(row.number for row in rows if red(row))
    return f"[of {every:,} harms](#power) {wrong or 'none'} came to what no server is known to do"


def power() -> str:
    """A row for each harm and server; what came to the same is counted."""
    lines = ["| harm | server | harms | what came of it | the last word of its log |", "|---|---|---|---|---|"]
    rows = found_of_power()
    for kind, program in sorted({(row.kind, row.program) for row in rows}, key=_place_of_power):
        these = [row for row in rows if (row.kind, row.program) == (kind, program)]
        number = sum(row.number for row in these)
        came = "; ".join(f"{row.number:,} {row.came}{_stuck(row)}" if these[1:] else row.came for row in these)
        told = "; ".join(dict.fromkeys(f"“{_short(row.told)}”" for row in these if row.told))
        lines.append(f"| {kind} | {program} | {number:,} | {came} | {told} |")
    return "\n".join(lines)


def _place_of_power(of: tuple[str, str]) -> tuple[int, str]:
    return KINDS.index(of[0]), of[1]


def _stuck(row: PowerRow) -> str:
    return (
        f" (the library was to go on with {row.asked} of these states, and did not with {row.stuck})"
        if row.stuck
        else ""
    )


def _short(told: str) -> str:
    """Without what the server advises."""
    return told.partition(": make a backup")[0].partition(", with args")[0]


def faults() -> str:
    lines = ["| `make proof-…` | what happened | found by | mended in |", "|---|---|---|---|"]
    lines += [f"| `{one.name}` | {one.story} | {one.found} | {one.commit} |" for one in FAULTS]
    return "\n".join(lines)


BLOCKS = {
    "promises": promises, "seeds": so_far, "judges": checkers, "specification": specification, "faults": faults,
    "power": power,
}  # fmt: skip


def filled(text: str) -> str:
    """The page with current blocks; each is between `<!-- NAME -->` and `<!-- end of NAME -->`."""
    for name, block in BLOCKS.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        assert after, f"{begin} and {end} are not in the page"
        text = f"{before}{begin}\n\n{block()}\n\n{end}{after}"
    return text
