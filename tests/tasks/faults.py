"""What a member node may do wrong, as hooks of the loopback server."""

import time
from collections import Counter
from collections.abc import Callable, Iterator

from examples.demo.member_server import MemberServer, Reply, Request, failure
from tasks.member_node.client import Failing, Malformed, MemberNodeError, MemberRefused, MemberTimedOut, TooLarge

AWKWARD = ["doi:10.5063/F1/a?b#c%2F d", "ünïcødé/日本", "..", "a+b&c=d;e", "%", "<&>\"'", "ark:/1/x", "{x}|^`\\"]
BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a0 "aaaaaaaaaa">'
    + b"".join(b'<!ENTITY a%d "%s">' % (n + 1, b"&a%d;" % n * 10) for n in range(9))
    + b"]><objectList total='1'>&a9;</objectList>"
)


def pieces(piece: bytes, number: int, pause: float = 0.0) -> Iterator[bytes]:
    for _ in range(number):
        time.sleep(pause)  # the member's own slowness
        yield piece


Fault = Callable[[Request], Reply]


def faulty(
    server: MemberServer, fault: Fault, *, meta: set[str] | None = None, listings: int | None = None
) -> Counter[str]:
    """Answers by `fault` for the system metadata of some pids, or from so many listings on. Counts all."""
    seen: Counter[str] = Counter()

    def hook(request: Request) -> Reply | None:
        kind = "/".join(request.path)
        seen[kind] += 1
        if request.path[0] == "object" and listings is not None and seen[kind] >= listings:
            return fault(request)
        if request.path[0] == "meta" and meta is not None and request.path[1] in meta:
            return fault(request)
        return None

    server.hook = hook
    return seen


def always(reply: Reply) -> Callable[[Request], Reply]:
    return lambda request: reply


def says(status: int) -> Fault:
    return lambda request: failure(status, "SomeName", "some words")


FAULTS: list[tuple[Fault, type[MemberNodeError]]] = [
    (says(401), MemberRefused),
    (says(404), MemberRefused),
    (says(500), Failing),
    (always(Reply(b"garbage")), Malformed),
    (always(Reply(b"")), Malformed),
    (always(Reply(BOMB)), Malformed),
    (lambda request: Reply(pieces(b" " * 1024 * 1024, 100)), TooLarge),
    (lambda request: Reply(pieces(b" ", 100, pause=0.6)), MemberTimedOut),
]
NAMES = ["401", "404", "500", "garbage", "nothing", "entity bomb", "100 MB", "hangs"]
