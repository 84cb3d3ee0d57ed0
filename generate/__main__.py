"""Write the pages and pictures that are made from the code: `make generated`. ARGS=--check says which are stale.

All of it takes seconds and comes out the same anywhere. What measures, records or photographs this machine has a
command of its own, which CONTRIBUTING.md names.
"""

from __future__ import annotations

from pathlib import Path

import click

from generate import awaited, commands, pictures, settings, steps
from proof import sceptic

DOCS = Path(__file__).parents[1] / "docs"


def made(docs: Path) -> dict[Path, str]:
    """Each file with the text that belongs there."""
    proof, redis = docs / "proof.md", docs / "redis.md"
    return {
        docs / "commands.md": commands.page(),
        docs / "settings.md": settings.page(),
        proof: sceptic.filled(proof.read_text(encoding="utf-8")),
        redis: steps.filled(redis.read_text(encoding="utf-8")),
        **{docs / name: picture() for name, picture in pictures.PICTURES.items()},
        docs.parent / awaited.STUB: awaited.stub(),
    }


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; status 1 where a file is stale.")
@click.option("--docs", default=DOCS, type=click.Path(path_type=Path), help="Of another checkout.")
def main(check: bool, docs: Path) -> None:
    """Write the pages and pictures that are made from the code."""
    stale = {path: text for path, text in made(docs).items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in stale.items():
        click.echo(f"{path.parent.name}/{path.name} {'is stale: make generated' if check else 'is written anew'}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)  # of another checkout
            path.write_text(text, encoding="utf-8")
    raise SystemExit(check and bool(stale))


if __name__ == "__main__":
    main(prog_name="python -m generate")
