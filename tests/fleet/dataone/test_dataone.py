"""DataONE's own client at the members' door, on every path that the door has: `make dataone` installs it.

The suite plays its recorded requests: tests/fleet/tasks/test_web.py.
"""

import json
import os
import subprocess
from datetime import timedelta

from tasks import instants
from tests.fleet.tasks.conftest import A, B, Members, members
from tests.fleet.tasks.service import Service
from tests.fleet.tasks.test_web import OURS, PIDS, Door, certificate, door, service, token_of
from tests.harness.waiting import wait_until

__all__ = ["door", "members", "service"]

CLIENT = """
import json, sys
from d1_client.cnclient_2_0 import CoordinatingNodeClient_2_0 as Client
from d1_common.types.exceptions import DataONEException

def said(ask):
    try:
        return ask()
    except DataONEException as error:
        return [type(error).__name__, error.errorCode]

how, ca, member, stranger, *pids = sys.argv[2:]
shown = {"jwt_token": how} if not how.endswith(".pem") else {"cert_pem_path": how, "cert_key_path": how}
client = Client(sys.argv[1].removesuffix("/v2"), verify_tls=ca, **shown)
one = lambda name: client._read_dataone_type_response(client.GET(["node", name]), "Node").identifier.value()
print(json.dumps([
    client.ping(), [node.identifier.value() for node in client.listNodes().node], one(member),
    said(lambda: one("urn:node:nowhere")), *(said(lambda: client.synchronize(pid)) for pid in pids),
]))
"""


def python() -> str:
    """That of the environment which `make dataone` installs. Without it the tests fail: none is left out."""
    found = os.environ.get("DATAONE", "")
    assert found, "DATAONE names no Python that has dataone.gmn: make dataone"
    return found


def client(door: Door, how: str, *pids: str) -> list[object]:
    """What the client's calls gave, or the errors that they raised."""
    argv = [python(), "-c", CLIENT, door.url, how, str(door.folder / "ca.pem"), A, B, *pids]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
    answers: list[object] = json.loads(done.stdout)
    return answers


def test_dataones_client_asks_by_certificate_and_by_token(service: Service, door: Door, members: Members) -> None:
    pem, token = certificate(OURS, "mnA", door.folder), token_of(service, A)
    known = [True, [A, B], A, ["NotFound", 404]]
    service.node("one")
    assert client(door, str(pem), PIDS[0]) == [*known, True]
    assert client(door, token, PIDS[1]) == [*known, True]
    wait_until(lambda: {*PIDS} <= service.pids(A))
    members[1].put("only-b", instants.now() - timedelta(minutes=1))
    service.ask(json.dumps({"node": B, "id": "b"}))
    assert service.ended("b").state == "succeeded"
    assert client(door, token, "only-b", "", "x" * 70_000)[4:] == [
        ["NotAuthorized", 401],
        ["InvalidRequest", 400],
        ["InsufficientResources", 413],
    ]
    assert client(door, "wrong", "a")[4] == ["InvalidToken", 401]
