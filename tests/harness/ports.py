"""Ports for the servers of tests, which no other test and no outgoing connection can take before the server has them.

A server that starts slowly would else lose its port to another one, and its test would talk to that.
"""

import itertools
import os
import random
import socket
from contextlib import suppress

_FIRST, _EACH = 20_000, 1_500  # below Linux' ports of outgoing connections; so many for each process of pytest-xdist
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
_START = random.randrange(_EACH)  # two runs of the tests on one machine
_NEXT = itertools.count(_START)


def free_port() -> int:
    """Each call gives another one, until all of this process' were given."""
    while True:
        port = _FIRST + _WORKER * _EACH + next(_NEXT) % _EACH
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
