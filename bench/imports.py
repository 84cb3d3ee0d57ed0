"""What does `from coordinator import Coordinator` cost a program, beside an interpreter that imports nothing?"""

import statistics
import subprocess
import sys

from bench import amount

TIMES = amount(20, 2)
IMPORTS = (
    "pass",
    "from coordinator import NoRetry",
    "from coordinator import Coordinator",
    "import celery; celery.Celery()",
)
PROGRAM = """
import resource
{}
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def main() -> None:
    for line in IMPORTS:
        figures = [cost(line) for _ in range(TIMES)]
        seconds, megabytes = (statistics.median(column) for column in zip(*figures, strict=True))
        print(f"{line:36} {1e3 * seconds:4.0f} ms of a processor, {megabytes:3.0f} MB")


def cost(line: str) -> tuple[float, float]:
    """Seconds and megabytes of a new process that runs the line."""
    argv = [sys.executable, "-c", PROGRAM.format(line)]
    seconds, megabytes = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    return float(seconds), float(megabytes)


if __name__ == "__main__":
    main()
