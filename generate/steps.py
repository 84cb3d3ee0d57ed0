"""Writes the table of all steps into docs/redis.md, from their declarations."""

import inspect
import re

from coordinator.core.store.library import DECLARED
from tasks.documents import library as documents

BEGIN, END = "<!-- steps -->", "<!-- end of steps -->"


def filled(page: str) -> str:
    """The page with the table as it is now, between its two marks."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    assert after, f"{BEGIN} and {END} stand not in the page"
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def table() -> str:
    rows = ["| step | takes | does |", "|---|---|---|"]
    for step in (*DECLARED, *documents.DECLARED):
        names = " ".join(step.names)
        rows.append(f"| `{step.name}` | {f'`{names}`' if names else ''} | {_summary(step.declared)} |")
    return "\n".join(rows)


def _summary(declared: object) -> str:
    """The first paragraph, without what a repeated call answers."""
    said = (inspect.getdoc(declared) or "").partition("\n\n")[0]
    text = re.sub(r"\s+", " ", said).partition(" Asked again")[0]
    return text.replace("|", "\\|").replace("<", "&lt;")
