"""Pages of the site that lie beside docs/: a hook of mkdocs.

A link in a page names a file as it lies in the repository, so that it leads somewhere there, too. The hook turns it
into the page's place on the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
BESIDE = (
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE",
    "bench/README.md", "deploy/ldap/README.md", "examples/README.md", "tasks/README.md",
)  # fmt: skip

_LINK = re.compile(r"(\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File  # the tests read this module without mkdocs

    for path in BESIDE:
        place = "readme.html" if path == "README.md" else None  # index.html is that of docs/index.md
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls, dest_uri=place))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    place = page.file.src_uri
    return moved_links(markdown, place if place in BESIDE else f"docs/{place}")


def moved_links(markdown: str, path: str) -> str:
    """The text of a page at that path of the repository, with the links that it has on the site."""
    here = posixpath.dirname(path.removeprefix("docs/"))

    def moved(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), found[2])).removeprefix("docs/")
        return f"{found[1]}{posixpath.relpath(target, here or '.')}{found[3]}"

    return _LINK.sub(moved, markdown)
