"""A group of tables that belong together, such as the catalog's, and the folder of their migrations."""

from pathlib import Path
from typing import NamedTuple


class Group(NamedTuple):
    """Tables that belong together, such as the catalog's. `migrations`: the folder of the files `v0001_….py` and on."""

    name: str
    migrations: Path

    @property
    def version_table(self) -> str:
        """The name of the table with the number of the last migration that has run."""
        return f"{self.name}_version"

    def versions(self) -> list[str]:
        """Return the numbers of all the group's migrations, such as "0001", in ascending order."""
        return sorted(path.stem[1:5] for path in self.migrations.glob("v[0-9]*.py"))
