"""`coordinator grabs`: the instances, the same from any server."""

import json

from coordinator import Coordinator
from tests.harness.command import Call, told


def test_grabs_lists_who_won_and_how_it_ended(call: Call, coordinator: Coordinator) -> None:
    coordinator.grab("nightly", "a", "server 1").complete({"rows": 3})
    with coordinator.grab("nightly", "b", "server 2") as running, coordinator.grab("hourly", 1, "server 1"):
        lines = told(call("grabs", "nightly")).splitlines()
        assert lines[0].split() == ["KEY", "INSTANCE", "WINNER", "HOST", "STATE", "ATTEMPT", "STARTED", "ENDED"]
        found = json.loads(told(call("grabs", "nightly", "--json")))
        assert [(one["instance"], one["state"], one["winner"][0]) for one in found] == [
            ("b", "running", "server 2"),
            ("a", "complete", "server 1"),
        ]
        assert found[1]["value"] == {"rows": 3}
        assert len(told(call("grabs")).splitlines()) == 4
        lanes = told(call("lanes"))
        assert "grab nightly b" in lanes
        assert running.won
    assert told(call("grabs", "nobody")).count("\n") == 0
