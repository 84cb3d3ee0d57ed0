"""Boxes, stores and arrows of a picture, as SVG that is readable on a light and on a dark screen."""

from __future__ import annotations

from html import escape

STYLE = """\
  .ground { fill: #ffffff; stroke: #d0d7de; }
  .box { fill: #eef6f5; stroke: #00796b; stroke-width: 1.5; }
  .store { fill: #fdf3e1; stroke: #b26a00; stroke-width: 1.5; }
  .good { fill: #e6f4e6; stroke: #2e7d32; stroke-width: 1.5; }
  .bad { fill: #fbeaea; stroke: #c62828; stroke-width: 1.5; }
  .quiet { fill: #f0f1f3; stroke: #8a9199; stroke-width: 1.5; stroke-dasharray: 4 3; }
  .frame { fill: none; stroke: #8a9199; stroke-dasharray: 5 4; }
  .line { fill: none; stroke: #57606a; stroke-width: 1.5; }
  .head { fill: #57606a; }
  text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; }
  .name { font-weight: 600; }
  .label { font-size: 12px; fill: #57606a; paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #1b1f24; stroke: #3d444d; }
    .box { fill: #10302c; stroke: #4db6ac; }
    .store { fill: #3a2a10; stroke: #ffb74d; }
    .good { fill: #14301a; stroke: #66bb6a; }
    .bad { fill: #3b1a1a; stroke: #ef5350; }
    .quiet { fill: #262b31; stroke: #79828c; }
    .frame { stroke: #79828c; }
    .line { stroke: #9aa4af; }
    .head { fill: #9aa4af; }
    text { fill: #e6edf3; }
    .label { fill: #b4bdc7; stroke: #1b1f24; }
  }"""

Point = tuple[float, float]


class Drawing:
    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{STYLE}\n</style>",
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
            'orient="auto-start-reverse"><path class="head" d="M0 0 10 5 0 10z"/></marker></defs>',
            f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        ]

    def box(self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "box") -> None:
        """Its first line is its name."""
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')
        self._lines(x + width / 2, y + height / 2, lines)

    def store(self, x: float, y: float, width: float, height: float, *lines: str) -> None:
        bow = 10
        self._parts.append(
            f'<path class="store" d="M{x} {y + bow}a{width / 2} {bow} 0 0 1 {width} 0v{height - 2 * bow}'
            f'a{width / 2} {bow} 0 0 1 {-width} 0zM{x} {y + bow}a{width / 2} {bow} 0 0 0 {width} 0"/>'
        )
        self._lines(x + width / 2, y + height / 2 + bow / 2, lines)

    def frame(self, x: float, y: float, width: float, height: float, name: str) -> None:
        self._parts.append(f'<rect class="frame" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>')
        self.text(x + width / 2, y + 20, name, kind="name")

    def arrow(self, *points: Point, label: str = "", at: Point | None = None, start: str = "middle") -> None:
        """Through the points; the label lies over the middle of its first part unless `at` says where."""
        path = " ".join(f"{x:g} {y:g}" for x, y in points)
        self._parts.append(f'<polyline class="line" points="{path}" marker-end="url(#head)"/>')
        self._label(points, label, at, start)

    def curve(self, begin: Point, bend: Point, end: Point, label: str = "", at: Point | None = None) -> None:
        path = f"M{begin[0]:g} {begin[1]:g}Q{bend[0]:g} {bend[1]:g} {end[0]:g} {end[1]:g}"
        self._parts.append(f'<path class="line" d="{path}" marker-end="url(#head)"/>')
        self._label((begin, end), label, at, "middle")

    def line(self, *points: Point) -> None:
        path = " ".join(f"{x:g} {y:g}" for x, y in points)
        self._parts.append(f'<polyline class="line" points="{path}"/>')

    def text(self, x: float, y: float, text: str, kind: str = "label", start: str = "middle") -> None:
        self._parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{start}">{escape(text)}</text>')

    def svg(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])

    def _label(self, points: tuple[Point, ...], label: str, at: Point | None, start: str) -> None:
        if label:
            (left, top), (right, bottom) = points[0], points[1]
            x, y = at or ((left + right) / 2, (top + bottom) / 2 - 6)
            for number, line in enumerate(label.split("\n")):
                self.text(x, y + 15 * number, line, start=start)

    def _lines(self, x: float, y: float, lines: tuple[str, ...]) -> None:
        top = y - 9 * (len(lines) - 1) + 4.5
        for number, line in enumerate(lines):
            self._parts.append(
                f'<text class="{"name" if number == 0 else "rest"}" x="{x:g}" y="{top + 18 * number:g}" '
                f'text-anchor="middle">{escape(line)}</text>'
            )
