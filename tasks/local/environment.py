"""The file with which another terminal talks to the service on this machine: `. DIR/environment`."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

import click

from coordinator import Coordinator, StoreUnavailable

MARK = "CELERY_COORDINATOR_ENVIRONMENT"
"""A variable that names the file from which a shell has read the others."""


def write(file: Path, variables: Mapping[str, str]) -> None:
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in {**variables, MARK: str(file)}.items()]
    file.unlink(missing_ok=True)
    file.touch(0o600)
    file.write_text("".join(lines))


def refuse_anothers() -> None:
    """Raise ClickException where this shell has the variables of an installation whose Redis does not answer."""
    file, url = os.environ.get(MARK), os.environ.get("COORDINATOR_URL")
    if not file or not url:
        return
    try:
        Coordinator(url=url).store.read("PING")
    except StoreUnavailable as error:
        ours = [name for name in os.environ if name.startswith(("COORDINATOR_", "TASKS_"))]
        unset = " ".join(sorted([*ours, "CELERY_BROKER_URL", MARK]))
        again = f"coordinator up --data {shlex.quote(str(Path(file).parent))}"
        raise click.ClickException(
            f"this shell has read {file}, and the Redis of that installation does not answer: {error}. Take another "
            f"shell, or first: unset {unset}. To start that installation again: {again}"
        ) from error
