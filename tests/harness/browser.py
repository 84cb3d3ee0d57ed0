"""Chromium without its own windows, or whole where that is not here: each page is as wide as its window, and sound."""

import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import urljoin

from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

AXE = (Path(__file__).parent / "axe/axe.min.js").read_text()
# Rules that find nothing serious are left out, and what only rules want that axe-core leaves out itself.
SOUND = """{
  const others = axe._audit.rules.filter(rule => !/serious|critical/.test(rule.impact));
  const rules = Object.fromEntries(others.map(rule => [rule.id, {enabled: false}]));
  axe.run({preload: false, resultTypes: ['violations'], rules}).then(found => found.violations);
}"""
# The pulse of a live page would be drawn anew sixty times a second.
STILL: dict[str, Any] = {"reduced_motion": "reduce"}
LOOKS = ((360, "light"), (1280, "dark"))
COLUMNS = """{
  document.querySelectorAll('[hx-sse\\\\:connect]').forEach(live => live.remove());
  document.querySelector('.columns').outerHTML;
}"""
# As dashboard.js does: the entry of the bar for this page is in sight.
TO_CURRENT = """document.querySelectorAll('nav').forEach(bar => {
  const current = bar.querySelector('[aria-current], .within');
  if (current) bar.scrollLeft = current.offsetLeft - bar.clientWidth / 2;
})"""
SCROLLS = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.ariaLabel)"

expect.set_options(timeout=60_000)  # ms; a busy machine takes longer than the five seconds of Playwright


@contextmanager
def chromium() -> Iterator[Browser]:
    with warnings.catch_warnings(), sync_playwright() as playwright:
        warnings.simplefilter("ignore")
        place = which("chromium-headless-shell") or which("chromium")
        browser = playwright.chromium.launch(executable_path=place, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def watched_tab(browser: Browser, address: str | None = None, **context: Any) -> Iterator[tuple[Page, list[str]]]:
    """A tab in a context of its own, and what is written to its console."""
    wrong = list[str]()

    def write(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            wrong.append(message.text)

    with browser.new_context(base_url=address, **STILL, **context) as own:
        tab = own.new_page()
        tab.on("console", write)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        yield tab, wrong


@contextmanager
def tab_of(browser: Browser, address: str, **context: Any) -> Iterator[Page]:
    """A tab; at the end, nothing was written to its console."""
    with watched_tab(browser, address, **context) as (tab, wrong):
        yield tab
    assert not wrong


def serious(tab: Page) -> list[Any]:
    """The serious findings of axe-core."""
    if not tab.evaluate("'axe' in window"):
        tab.evaluate(AXE)
    return [(v["id"], [node["html"][:120] for node in v["nodes"]][:3]) for v in tab.evaluate(SOUND)]


def hold_sound(tab: Page, paths: Iterable[str], scrolls: Container[str] = ()) -> None:
    """Pages fit a telephone and a window, and are sound to axe-core, light and dark. `scrolls`: paths of those in which
    a table may be wider.

    Each is loaded and measured by itself. axe-core, which costs as much as that, looks at all of them one behind the
    other, in a page that is not live.
    """
    shown = list[str]()
    for path in paths:
        tab.goto(path)
        for width, _ in LOOKS[:: 1 if len(shown) % 2 else -1]:
            tab.set_viewport_size({"width": width, "height": 800})
            assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
            assert path in scrolls or not tab.evaluate(SCROLLS), path
        shown.append(tab.evaluate(COLUMNS))
    tab.goto(urljoin(tab.url, "/act/pause?key=stock"))
    tab.evaluate(
        "shown => document.querySelector('.columns').outerHTML = shown.join('')", [tab.evaluate(COLUMNS), *shown]
    )
    for width, colours in LOOKS:
        tab.set_viewport_size({"width": width, "height": 800})
        tab.emulate_media(color_scheme=colours)  # type: ignore[arg-type]
        tab.evaluate(TO_CURRENT)
        assert not (found := serious(tab)), found


def away_and_back(
    tab: Page, pages: Mapping[str, str], said: str, take: Callable[[], object], give: Callable[[], object]
) -> None:
    """Pages that somebody looks at say what is away, as new ones do, and show what they had once it is there again.

    `tab`: for the new ones. `pages`: by address, a text on it.
    """
    looking = {address: tab.context.new_page() for address in pages}
    for address, one in looking.items():
        one.goto(address)
        one.locator("[data-pulse]:has-text('live')").wait_for()
        one.get_by_text(pages[address]).first.wait_for()
    take()
    for address, one in looking.items():
        one.locator(f"[role=alert]:has-text('{said}')").wait_for()
        answer = tab.goto(address)
        assert answer
        assert (answer.status, said in tab.locator("[role=alert]").inner_text()) == (503, True)
    give()
    for address, one in looking.items():
        one.get_by_text(pages[address]).first.wait_for()
        one.close()
