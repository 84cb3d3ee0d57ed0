"""Writes met.py: for each planted fault the shortest course found that meets it. `python -m tests.model.make_met`

The tests take that course first. Where a change of the machine makes it another course, they search on for longer.
What met.py says already is kept as far as it holds.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.harness.redis import RedisServer
from tests.model import met
from tests.model.beside import both
from tests.model.mutants import MUTATIONS
from tests.model.mutants.memory import FAULTS
from tests.model.test_memory import is_seen as is_fault_seen
from tests.model.test_mutations import is_seen

COURSES, STEPS, FOUND = 1500, 60, 12  # `FOUND`: how many courses are tried at least
HEAD = "For each planted fault a course that meets it: its number and its steps. make_met.py writes this."
Seen = Callable[[int, int], bool]  # the number of a course, and its steps


def shortest(seen: Seen) -> tuple[int, int] | None:
    """The course with the fewest steps, and how many."""
    best = None
    for number in range(COURSES):
        if best and (number >= FOUND or best[1] <= 5):
            break
        steps = best[1] - 1 if best else STEPS
        if seen(number, steps):
            low, high = 0, steps
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if seen(number, middle) else (middle, high)
            best = number, high
    return best


def all_faults(server: RedisServer) -> Iterator[tuple[str, Seen]]:
    """A course that finds something without the fault, too, does not count."""
    url = server.url(9)
    for one in MUTATIONS:
        if not one.seldom:
            yield (
                one.why,
                lambda *course, one=one: is_seen(url, one, [course]) and not is_seen(url, None, [course]),
            )
    with both(url, server.fresh_prefix()) as sides:
        for fault in FAULTS:
            if not fault.seldom:
                yield (
                    fault.why,
                    lambda *course, one=fault: (
                        is_fault_seen(sides, one, [course]) and not is_fault_seen(sides, None, [course])
                    ),
                )


def main() -> None:
    lines = [f'"""{HEAD}"""', "", "MET = {"]
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as server:
        for why, seen in all_faults(server):
            known = met.MET.get(why)
            found = known if known and seen(*known) else shortest(seen)
            print(why, found, flush=True)
            lines += [f'    "{why}": {found},'] if found else []
    Path(met.__file__).write_text("\n".join([*lines, "}", ""]))


if __name__ == "__main__":
    main()
