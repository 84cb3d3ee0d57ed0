"""A group of tables that belong together, and their migrations."""

from pathlib import Path
from typing import NamedTuple


class Group(NamedTuple):
    """Tables that belong together, such as the catalog's. `migrations`: the folder of the files `v0001_….py`."""

    name: str
    migrations: Path

    @property
    def version_table(self) -> str:
        return f"{self.name}_version"

    def versions(self) -> list[str]:
        """The numbers of all migrations, in their order."""
        return sorted(path.stem[1:5] for path in self.migrations.glob("v[0-9]*.py"))
