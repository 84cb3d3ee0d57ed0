"""The work of these examples: it takes a second."""

import time


def work(name: str) -> str:
    time.sleep(1)
    return name
