"""docs/moving.md shows the code of examples/moving as it is, and says all that is there."""

import re
from pathlib import Path

from tests.harness.each import each

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "moving.md").read_text()
CODE = {
    str(path.relative_to(ROOT)): path.read_text()
    for when in ("before", "after")
    for path in sorted((ROOT / "examples" / "moving" / when).glob("*.py"))
}
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}


@each(lambda: [name for name, text in SECTIONS.items() if "```python" in text])
def test_each_block_of_a_section_stands_in_the_files_that_it_names(section: str) -> None:
    named = "\n".join(CODE[path] for path in re.findall(r"`(examples/moving/[\w/]+\.py)`", SECTIONS[section]))
    for block in re.findall(r"```python\n(.*?)```", SECTIONS[section], re.DOTALL):
        assert f"\n{block}" in named


@each(lambda: sorted(CODE))
def test_each_file_has_a_section(path: str) -> None:
    assert f"`{path}`" in PAGE


def test_the_table_at_the_top_leads_to_all_systems() -> None:
    rows = re.findall(r"^\| \[[^]]+\]\(#([\w-]+)\)", PAGE, re.MULTILINE)
    headings = [re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in SECTIONS]
    assert rows == headings[1:]
