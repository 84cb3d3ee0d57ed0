"""Writes the file of environment variables that another terminal reads to reach the service: `. DIR/environment`."""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import click

from coordinator import Coordinator, StoreUnavailable
from coordinator import Settings as OfLibrary
from tasks.settings import PREFIX, Settings

MARK = "CELERY_COORDINATOR_ENVIRONMENT"
"""The environment variable that names the file from which a shell has read the others."""
OURS = ("COORDINATOR_", PREFIX, "CELERY_")
KNOWN = {
    *(f"COORDINATOR_{name.upper()}" for name in OfLibrary.model_fields),
    *(f"{PREFIX}{name.upper()}" for name in Settings.model_fields),
    *("CELERY_BROKER_URL", "CELERY_RESULT_BACKEND"),
}
_RELATIVE = re.compile(r"sqlite[+\w]*:///(?![/:]|file:)")  # what precedes a relative path in a SQLite address


def settings_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables in `environ` that are settings of the service, of the library or of Celery.

    Relative paths become absolute, since another terminal may be in another folder.
    """
    ours = {name: value for name, value in environ.items() if name.startswith(OURS)}
    for name, field in Settings.model_fields.items():
        variable = PREFIX + name.upper()
        if ours.get(variable) and (name == "access" or field.annotation in (Path, Path | None)):
            ours[variable] = str(Path(ours[variable]).absolute())
    if database := ours.get(f"{PREFIX}DATABASE_URL"):
        ours[f"{PREFIX}DATABASE_URL"] = _RELATIVE.sub(lambda found: f"{found[0]}{Path.cwd()}/", database)
    return ours


def write(file: Path, variables: Mapping[str, str]) -> None:
    """Write a shell script that exports the variables and unsets all other settings.

    Only its owner may read the file, since there may be passwords in it.
    """
    variables = {**variables, MARK: str(file)}
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items())]
    file.unlink(missing_ok=True)
    file.touch(0o600)
    file.write_text("".join([*lines, f"unset {' '.join(sorted(KNOWN - variables.keys()))}\n"]))


def refuse_anothers() -> None:
    """Raise ClickException if this shell has read the environment file of a service whose Redis does not answer."""
    file, url = os.environ.get(MARK), os.environ.get("COORDINATOR_URL")
    if not file or not url:
        return
    try:
        Coordinator(url=url).store.read("PING")
    except StoreUnavailable as error:
        unset = " ".join(sorted(settings_of(os.environ)))
        again = f"coordinator up --data {shlex.quote(str(Path(file).parent))}"
        raise click.ClickException(
            f"this shell has read {file}, and the Redis of that installation does not answer: {error}. Take another "
            f"shell, or first: unset {unset}. To start that installation again: {again}"
        ) from error
