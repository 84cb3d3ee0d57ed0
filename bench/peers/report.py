"""The table and the figures of the plot, both from the same results that go into the JSON."""

import statistics
from typing import Any

from bench.peers.field import HOLDERS, OURS, PEERS
from bench.peers.plot import Bar, Chart
from bench.peers.turns import BODIES

Results = dict[str, Any]
JOBS = ("peer", "jobs/s", "lowest to highest", "ours is", "submits", "order per key", "after kill -9", "one at a time")
LOCKS = ("lock", "us", "lowest to highest", "held/s by 8", "longest wait", "in turn", "renewed", "fence")


def tables(results: Results) -> str:
    """Titles and tables in plain text, and below them the peers that did not run."""
    parts = [f"{title_of(run)}\n{columns(JOBS, job_rows(run['peers']))}" for run in results["jobs"]]
    if results["locks"]:
        parts.append(f"a lock and its release; eight that want it\n{columns(LOCKS, lock_rows(results['locks']))}")
    parts += [
        f"{one['name']}, {title_of(run)}: {one['submitted'] - one['effects']} of {one['submitted']} never took effect"
        for run in results["jobs"]
        for one in run["peers"]
        if one["submitted"] != one["effects"]
    ]
    parts += [f"{one['title']}: not run: {one['reason']}" for one in results["not_run"]]
    return "\n\n".join(parts)


def title_of(run: Results) -> str:
    return f"{BODIES[run['body']]}; {run['keys']:,} key{'s' * (run['keys'] > 1)}"


def job_rows(measured: list[Results]) -> list[list[str]]:
    ours = next((statistics.median(one["rates"]) for one in measured if one["name"] == OURS), None)
    by_name = {peer.name: peer for peer in PEERS}
    rows = []
    for one in measured:
        peer, middle = by_name[one["name"]], statistics.median(one["rates"])
        ratio = "" if ours is None or peer.name == OURS else f"x {ours / middle:.2f}"
        rows.append([peer.title, f"{middle:,.0f}", spread(one["rates"]), ratio, peer.submits])
        rows[-1] += [peer.order, peer.killed, peer.alone]
    return rows


def lock_rows(measured: list[Results]) -> list[list[str]]:
    by_name = {holder.name: holder for holder in HOLDERS}
    rows = []
    for one in measured:
        holder = by_name[one["name"]]
        held, longest = statistics.median(one["held"]), statistics.median(one["longest"])
        rows.append([holder.title, f"{statistics.median(one['alone']):,.0f}", spread(one["alone"])])
        rows[-1] += [f"{held:,.0f}", f"{longest:,.0f} ms", holder.in_turn, holder.renewed, holder.fence]
    return rows


def spread(values: list[float]) -> str:
    return f"{min(values):,.0f} to {max(values):,.0f}"


def columns(head: tuple[str, ...], rows: list[list[str]]) -> str:
    """As wide as they need to be: the first to the left, figures to the right."""
    table = [list(head), *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number in (1, 2, 3) else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def charts(results: Results) -> list[Chart]:
    made = [
        Chart(f"jobs/s: {title_of(run)}", [bar(PEERS, one, "rates") for one in run["peers"]]) for run in results["jobs"]
    ]
    if results["locks"]:
        made.append(Chart("us for a lock and its release", [bar(HOLDERS, one, "alone") for one in results["locks"]]))
        made.append(
            Chart("ms of the longest wait of eight", [bar(HOLDERS, one, "longest") for one in results["locks"]])
        )
    return made


def bar(field: tuple[Any, ...], one: Results, figure: str) -> Bar:
    title = next(peer.title for peer in field if peer.name == one["name"])
    values = one[figure]
    return Bar(title, min(values), statistics.median(values), max(values), one["name"] == OURS)
