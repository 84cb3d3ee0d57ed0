"""A small bar chart: horizontal bars of the medians, with a line from the lowest value to the highest."""

from typing import NamedTuple
from xml.sax.saxutils import escape

LABELS, BARS, FIGURES = 190, 460, 80
ROW, HEAD, GAP = 24, 30, 14
COLOURS = {True: "#1d6fb8", False: "#a9b4c0"}


class Bar(NamedTuple):
    label: str
    low: float
    median: float
    high: float
    ours: bool


class Chart(NamedTuple):
    title: str
    bars: list[Bar]


def svg(charts: list[Chart]) -> str:
    """All charts below each other, each with a scale of its own."""
    drawn, top = [], GAP
    for chart in charts:
        drawn.append(f'<text x="{GAP}" y="{top + 14}" font-weight="bold">{escape(chart.title)}</text>')
        top += HEAD
        scale = BARS / max((bar.high for bar in chart.bars), default=1)
        for bar in chart.bars:
            drawn.append(row(bar, top, scale))
            top += ROW
        top += GAP
    size = f'width="{LABELS + BARS + FIGURES}" height="{top}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">'
    return "\n".join((head, '<rect width="100%" height="100%" fill="#fff"/>', *drawn, "</svg>\n"))


def row(bar: Bar, top: int, scale: float) -> str:
    middle, end = top + ROW // 2, LABELS + bar.high * scale
    return (
        f'<text x="{LABELS - 8}" y="{middle + 5}" text-anchor="end">{escape(bar.label)}</text>'
        f'<rect x="{LABELS}" y="{top + 4}" width="{bar.median * scale:.1f}" height="{ROW - 8}"'
        f' fill="{COLOURS[bar.ours]}"/>'
        f'<line x1="{LABELS + bar.low * scale:.1f}" x2="{end:.1f}" y1="{middle}" y2="{middle}" stroke="#333"/>'
        f'<text x="{end + 6:.1f}" y="{middle + 5}">{bar.median:,.0f}</text>'
    )
