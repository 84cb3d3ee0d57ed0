"""What the command `coordinator` said."""

import json
from collections.abc import Callable
from typing import Any

from click.testing import Result

Call = Callable[..., Result]


def said(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def loaded(result: Result) -> Any:
    return json.loads(said(result))


def refused(result: Result) -> str:
    """Its one line on stderr."""
    assert result.exit_code == 1, result.output
    assert not result.stdout
    (line,) = result.stderr.strip().splitlines()
    return line
