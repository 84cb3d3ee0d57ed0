"""The settings that `up` writes for other terminals."""

from pathlib import Path

import pytest

from tasks.local.environment import settings_of


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("sqlite:///catalog.sqlite", "sqlite:///{here}/catalog.sqlite"),
        (
            "sqlite+pysqlite:///below/catalog.sqlite?timeout=5",
            "sqlite+pysqlite:///{here}/below/catalog.sqlite?timeout=5",
        ),
        ("sqlite:////data/catalog.sqlite", "sqlite:////data/catalog.sqlite"),
        ("postgresql+psycopg://user@server/name", "postgresql+psycopg://user@server/name"),
    ],
)
def test_a_terminal_in_another_folder_has_the_same_database(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str, written: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings_of({"TASKS_DATABASE_URL": given})["TASKS_DATABASE_URL"] == written.format(here=tmp_path)
