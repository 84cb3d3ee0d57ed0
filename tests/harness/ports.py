"""Ports for the servers of tests, which no other test and no outgoing connection can take before the server has them.

A server that starts slowly would else lose its port to another one, and its test would talk to that.
"""

import itertools
import os
import random
import socket
from contextlib import suppress

_FIRST, _EACH = 20_000, 750  # below Linux' ports of outgoing connections; so many for each process of pytest-xdist
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
# As many for the programs of its tests, as a bench: else one takes the port of a server that a test has killed for a
# while, and what follows that server, a Sentinel for instance, takes hold of the new one.
_IS_PROGRAM = os.environ.get("PORTS_OF_TESTS") == _WORKER
os.environ["PORTS_OF_TESTS"] = _WORKER
_SHARE = int(_WORKER.removeprefix("gw") or 0) % 8 * 2 + _IS_PROGRAM
_START = random.randrange(_EACH)  # two runs of the tests on one machine
_NEXT = itertools.count(_START)


def free_port() -> int:
    """Each call gives another one, until all of this process' were given."""
    while True:
        port = _FIRST + _SHARE * _EACH + next(_NEXT) % _EACH
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
