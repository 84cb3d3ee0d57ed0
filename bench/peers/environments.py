"""An environment for each peer, with pinned versions, kept in `.bench/` and used again by the next run."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".bench"


class NotInstalled(Exception):
    """Raised when pip fails; the text is its last line."""


def interpreter(name: str, requirements: tuple[str, ...]) -> Path:
    """The Python of an environment with these requirements. Without any it is the one that runs this."""
    if not requirements:
        return Path(sys.executable)
    folder = KEPT / "environments" / name
    python, made, wanted = folder / "bin" / "python", folder / "made", "\n".join((sys.version, *requirements))
    if not made.exists() or made.read_text() != wanted:
        print(f"installing {' '.join(requirements)} ...", flush=True)
        run(sys.executable, "-m", "venv", "--clear", str(folder))
        run(str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements)
        made.write_text(wanted)
    return python


def run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise NotInstalled("not installed: " + (done.stderr or done.stdout).strip().splitlines()[-1])
