"""A proxy is believed by its address, however that is written; a name is refused."""

import pytest
from starlette.requests import Request

from tasks.nodelist.stores import Listed
from tasks.web import Callers
from tasks.web.answers import DataoneError
from tests.harness.command import Run
from tests.tasks.conftest import river_with

SUBJECT = "CN=urn:node:mnA,DC=dataone,DC=org"
LISTED = {"urn:node:mnA": Listed(member=river_with(identifier="urn:node:mnA", subjects=(SUBJECT,)))}


def asked(client: str) -> Request:
    return Request({"type": "http", "headers": [(b"x-subject", SUBJECT.encode())], "client": (client, 1)})


@pytest.mark.parametrize(
    ("proxy", "client"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("10.0.0.0/24", "10.0.0.9"),
        ("10.0.0.7", "::ffff:10.0.0.7"),
        ("0:0::1", "::1"),
        ("fd00::/8", "fd00::7"),
    ],
)
def test_who_comes_from_the_address_of_a_proxy_is_believed(proxy: str, client: str) -> None:
    callers = Callers("X-Subject", [proxy])
    assert callers.caller(asked(client), LISTED, {}) == "urn:node:mnA"
    for stranger in ("10.0.1.9", "::2"):
        with pytest.raises(DataoneError):
            callers.caller(asked(stranger), LISTED, {})


@pytest.mark.parametrize("name", ["proxy.example.org", "localhost", "10.0.0.7/8", ""])
def test_a_name_of_a_proxy_is_refused(run: Run, name: str) -> None:
    done = run("web", "--proxy", name, "--subject-header", "X-Subject")
    assert (done.returncode, "give an IP address or network, not a host name" in done.stderr) == (2, True)
