"""An HTML page of a history with violations: each with the seconds around it, lane by lane."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from proof.checkers import Violation
from proof.history import SECOND, Event, History, Run

AROUND = 5 * SECOND  # before and after a wrong place
MOST = 20  # wrong places of a checker
WIDTH, ROW, LEFT = 1000, 22, 120  # pixels
_HEAD = """<!doctype html><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px system-ui; margin: 2em; max-width: 70em }} td {{ padding: 0 .8em 0 0; vertical-align: top }}
table {{ font: 12px monospace; border-spacing: 0 }} .wrong {{ background: #fdd }} .fault {{ fill: #fa0; opacity: .25 }}
.run {{ fill: #58c }} .refused {{ fill: #c66 }} text {{ font: 11px monospace }} summary {{ cursor: pointer }}
</style><h1>{title}</h1><pre>{about}</pre>"""


def page(history: History, wrong: dict[str, list[Violation]], steps: Path) -> str:
    """`steps`: the file with the recording of its steps."""
    title = f"Seed {history.about.get('seed')}: {sum(map(len, wrong.values()))} wrong places"
    parts = [_HEAD.format(title=escape(title), about=escape(json.dumps(history.about, indent=1)))]
    parts.append(
        f"<p>Its steps once more, at a Redis alone: <code>python -m proof replay {escape(str(steps))}</code></p>"
    )
    for name, places in wrong.items():
        if places:
            parts.append(f"<h2>{escape(name)}: {len(places)}</h2>")
            parts += [_place(history, one) for one in places[:MOST]]
    return "\n".join(parts)


def _place(history: History, wrong: Violation) -> str:
    if not 0 <= wrong.event < len(history.events):
        return f"<p class=wrong>{escape(wrong.text)}</p>"
    at = history.events[wrong.event].time
    near = [event for event in history.events if abs(event.time - at) < AROUND]
    rows = "".join(_row(event, at, event.index == wrong.event) for event in near)
    return (
        f"<h3>{escape(wrong.text)}</h3>{_drawing(history, at)}"
        f"<details><summary>{len(near)} events around it</summary><table>{rows}</table></details>"
    )


def _row(event: Event, at: int, wrong: bool) -> str:
    cells = [str(event.index), f"{(event.time - at) / SECOND:+.3f} s", event.process, event.f, event.type]
    cells.append(json.dumps(event.value))
    return f"<tr{' class=wrong' if wrong else ''}>" + "".join(f"<td>{escape(one)}</td>" for one in cells) + "</tr>"


def _drawing(history: History, at: int) -> str:
    """A row for each lane with runs at that time, above the faults."""
    runs = [run for run in history.runs if run.begun.time < at + AROUND and _end(run, at) > at - AROUND]
    keys = sorted({key for run in runs for key in run.keys})
    bars = [
        _bar(
            "run" if run.ended else "refused",
            run.begun.time,
            _end(run, at),
            at,
            keys.index(key),
            f"{run.job} {run.fence}",
        )
        for run in runs
        for key in run.keys
    ]
    faults = [
        _bar("fault", one.since, one.until, at, 0, one.name, len(keys))
        for one in history.faults
        if one.since < at + AROUND and one.until > at - AROUND
    ]
    names = [f'<text x="0" y="{row * ROW + 15}">{escape(key)}</text>' for row, key in enumerate(keys)]
    size = f'width="{LEFT + WIDTH}" height="{max(1, len(keys)) * ROW}"'
    return f"<svg {size}>{''.join(faults + names + bars)}</svg>"


def _bar(kind: str, since: int, until: int, at: int, row: int, text: str, rows: int = 1) -> str:
    left, right = (LEFT + WIDTH * min(max(one - at + AROUND, 0), 2 * AROUND) / (2 * AROUND) for one in (since, until))
    shape = f'x="{left:.1f}" y="{row * ROW}" width="{max(right - left, 2):.1f}" height="{rows * ROW - 3}"'
    return f'<rect class="{kind}" {shape}><title>{escape(text)}</title></rect>'


def _end(run: Run, at: int) -> int:
    return run.ended.time if run.ended else run.begun.time + SECOND // 10
