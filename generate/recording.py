"""Write docs/demo.svg, a recording of the demo on a terminal: python -m generate.recording [SECONDS]

The demo runs for real. A screen that differs from the one before is a frame; a long pause becomes a short one.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

import pyte

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "demo.svg"
COLUMNS, LINES = 88, 13
WIDE, HIGH = 7.8, 17  # of a character, in pixels
LEAST, LONGEST, LAST = 0.4, 0.6, 5.0  # seconds between two frames; of one frame; of the last one
COLORS = {
    "red": "#ff7b72", "green": "#7ee787", "brown": "#e3b341", "yellow": "#e3b341", "blue": "#79c0ff",
    "magenta": "#d2a8ff", "cyan": "#76e3ea", "white": "#f0f6fc", "black": "#8b949e",
}  # fmt: skip
STYLE = f"""\
  text {{ font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #c9d1d9; white-space: pre; }}
  .b {{ font-weight: 700; }}
{"".join(f"  .{name} {{ fill: {color}; }}{chr(10)}" for name, color in COLORS.items())}"""

Run = tuple[int, str, str]  # column, classes, text
Row = tuple[Run, ...]
Frame = tuple[Row, ...]


def main() -> None:
    seconds = sys.argv[1] if len(sys.argv) > 1 else "30"
    frames = shortened(list(recorded([sys.executable, "-m", "examples.demo", "--for", seconds])))
    PICTURE.write_text(svg(frames), encoding="utf-8")
    print(f"{PICTURE.name}: {len(frames)} frames, {PICTURE.stat().st_size // 1024} KiB")


def recorded(command: Sequence[str]) -> Iterator[tuple[float, Frame]]:
    """When each screen was seen, as it differs from the one before."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    stream.feed(b"\x1b[32m$\x1b[0m make run\r\n")
    begun = time.monotonic()
    yield 0.0, rows_of(screen)
    main_end, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        command, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs,
        env=environ | {"TERM": "xterm-256color"},
    ):  # fmt: skip
        os.close(theirs)
        last, seen = 0.0, rows_of(screen)
        for part in _read(main_end):
            stream.feed(part)
            now = time.monotonic() - begun
            if now - last >= LEAST and rows_of(screen) != seen:
                last, seen = now, rows_of(screen)
                yield now, seen
    os.close(main_end)
    yield time.monotonic() - begun, rows_of(screen)


def _read(end: int) -> Iterator[bytes]:
    """Until the program has closed its side; nothing, now and then, so that the last change is seen."""
    while True:
        ready, _, _ = select.select([end], [], [], LEAST)
        try:
            yield os.read(end, 65536) if ready else b""
        except OSError:
            return


def rows_of(screen: pyte.Screen) -> Frame:
    return tuple(_row(screen, number) for number in range(LINES))


def _row(screen: pyte.Screen, number: int) -> Row:
    """Neighbours of one look are one run; spaces at the end are left out."""
    runs: list[Run] = []
    for column in range(COLUMNS):
        char = screen.buffer[number][column]
        look = " ".join([_named(char.fg)] * (char.fg != "default") + ["b"] * char.bold)
        if runs and runs[-1][1] == look:
            runs[-1] = (runs[-1][0], look, runs[-1][2] + char.data)
        else:
            runs.append((column, look, char.data))
    return tuple((column, look, text.rstrip()) for column, look, text in runs if text.strip())


def _named(color: str) -> str:
    """Of 256 colours, those without a name are written as numbers."""
    return f"x{color}" if len(color) == 6 and color not in COLORS else color.removeprefix("bright")


def shortened(seen: list[tuple[float, Frame]]) -> list[tuple[float, Frame]]:
    """Each frame with the time for which it stands."""
    times = [when for when, _ in seen]
    spans = [min(max(after - when, LEAST), LONGEST) for when, after in pairwise(times)]
    return list(zip([*spans, LAST], [frame for _, frame in seen], strict=True))


def svg(frames: list[tuple[float, Frame]]) -> str:
    """A strip of all frames, which moves by one frame at a time. A row that stands on several is written once."""
    wide, high = round(COLUMNS * WIDE + 24), LINES * HIGH + 24
    whole = sum(span for span, _ in frames)
    rows = {row: f"r{number}" for number, row in enumerate(dict.fromkeys(row for _, frame in frames for row in frame))}
    steps, strip, at = list[str](), list[str](), 0.0
    for number, (span, frame) in enumerate(frames):
        steps.append(f"{100 * at / whole:.3f}% {{ transform: translateY({-number * high}px); }}")
        at += span
        strip += [
            f'<use href="#{rows[row]}" y="{number * high + 12 + HIGH * line}"/>'
            for line, row in enumerate(frame)
            if row
        ]
    last = f"transform: translateY({-high * (len(frames) - 1)}px);"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">',
            "<title>A run of: make run</title>",
            f"<style>\n{STYLE}{_of_numbers(rows)}  .strip {{ animation: run {whole:.1f}s step-end infinite; }}",
            "  @keyframes run {", *steps, "  }",
            f"  @media (prefers-reduced-motion) {{ .strip {{ animation: none; {last} }} }}\n</style>",
            "<defs>", *(_defined(row, name) for row, name in rows.items() if row), "</defs>",
            f'<rect width="{wide}" height="{high}" rx="8" fill="#0d1117"/>',
            '<g class="strip">', *strip, "</g>", "</svg>", "",
        ]
    )  # fmt: skip


def _of_numbers(rows: Iterable[Row]) -> str:
    found = {word for row in rows for _, look, _ in row for word in look.split() if word[0] == "x"}
    return "".join(f"  .{word} {{ fill: #{word[1:]}; }}\n" for word in sorted(found))


def _defined(row: Row, name: str) -> str:
    parts = (
        f'<tspan x="{12 + column * WIDE:g}"{f" class={chr(34)}{look}{chr(34)}" if look else ""}>{escape(text)}</tspan>'
        for column, look, text in row
    )
    return f'<text id="{name}" y="{HIGH - 4}" xml:space="preserve">{"".join(parts)}</text>'


if __name__ == "__main__":
    main()
