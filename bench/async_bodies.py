"""What does a body cost that is `async def`, beside the same body without `async`?

    python -m bench.async_bodies [--rounds 3]

One client submits jobs of many keys, in portions; a worker with two processes works on them meanwhile. The two kinds
run in turns, so that a change of the machine's speed meets both. The ratios are of the jobs a second after the last
submit, and of the processor time of a job in all processes together.
"""

import argparse
import statistics

from bench import amount
from bench.keyed import Body, Cost, bodies, cost, fleet, submit, warm_up

PAIRS = {
    "byte": ("mark", "each leaves a byte in a file"),
    "redis": ("count", "each goes to Redis and back"),
    "byte ": ("rest", "each waits for 5 ms, and leaves a byte"),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench async_bodies", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=amount(3, 1))
    rounds = parser.parse_args().rounds
    with fleet("everysec", "prefork", "plain") as bench:
        known = bodies(bench, False)
        for how, (name, title) in PAIRS.items():
            kinds = [known[how.strip()]._replace(task=getattr(bench, task)) for task in (name, f"{name}_async")]
            for kind in kinds:
                warm_up(bench, kind)
            report(title, [(measured(bench, kinds[0]), measured(bench, kinds[1])) for _ in range(rounds)])


def measured(bench: object, body: Body) -> Cost:
    jobs = amount(2_000, 10)
    return cost(body, lambda: submit(bench, body, 1_000, jobs), jobs)


def report(title: str, pairs: list[tuple[Cost, Cost]]) -> None:
    times = sorted(plain.backlog / own.backlog for plain, own in pairs)
    used = sorted(own.cpu / plain.cpu for plain, own in pairs if plain.cpu) or [float("nan")]
    print(f"  {title:40} time of a job x {statistics.median(times):.2f} ({times[0]:.2f} to {times[-1]:.2f})"
          f"   processor x {statistics.median(used):.2f} ({used[0]:.2f} to {used[-1]:.2f})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
