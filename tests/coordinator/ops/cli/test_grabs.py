"""`coordinator grabs`: the instances, the same from any server."""

import threading

from coordinator import Coordinator
from tests.harness.command import Call, listed, loaded, told
from tests.harness.hand_node import Puppet
from tests.harness.waiting import wait_until


def test_grabs_lists_who_won_and_how_it_ended(call: Call, coordinator: Coordinator) -> None:
    coordinator.grab("nightly", "a", "server 1").complete({"rows": 3})
    with coordinator.grab("nightly", "b", "server 2") as running, coordinator.grab("hourly", 1, "server 1"):
        lines = told(call("grabs", "nightly")).splitlines()
        assert lines[0].split() == ["KEY", "INSTANCE", "WINNER", "HOST", "STATE", "ATTEMPT", "STARTED", "ENDED", "WHY"]
        found = listed(call("grabs", "nightly", "--json"))
        assert [(one["instance"], one["state"], one["winner"][0]) for one in found] == [
            ("b", "running", "server 2"),
            ("a", "complete", "server 1"),
        ]
        assert found[1]["value"] == {"rows": 3}
        assert len(told(call("grabs")).splitlines()) == 4
        first = loaded(call("grabs", "--most", "2", "--json"))
        rest = loaded(call("grabs", "--most", "2", "--json", "--after", first["after"]))
        assert [one["instance"] for one in first["grabs"] + rest["grabs"]] == ["1", "b", "a"]
        assert (first["after"], rest["after"]) == ("nightly/b", None)
        lanes = told(call("lanes"))
        assert "grab¦nightly¦b" in lanes
        assert running.won
    assert told(call("grabs", "nobody")).count("\n") == 0


def test_a_grab_is_released_by_its_name_and_keeps_who_did_it_and_why(call: Call, coordinator: Coordinator) -> None:
    coordinator.grab("nightly", "a", "server 1")
    release = ("grabs", "release", "nightly", "a", "--why", "it hangs", "--by", "ann", "--attempt", "1")
    assert told(call(*release)) == "nightly a is taken from server 1"
    assert told(call(*release)) == "nobody has nightly a"
    second = coordinator.grab("nightly", "a", "server 2")
    assert told(call(*release)) == "nobody has nightly a"
    second.complete()
    assert len(told(call("grabs", "nightly")).splitlines()) == 2
    _heads, last, first = told(call("grabs", "nightly", "--history")).splitlines()
    assert "server 2" in last
    assert all(part in first for part in ("server 1", "abandoned", "it hangs", "ann"))


def test_a_submit_with_an_instance_says_who_has_it_and_waits_for_the_end(
    call: Call, coordinator: Coordinator, node: Puppet
) -> None:
    made = loaded(call("submit", "nightly", "shop.work", "--instance", "a", "--id", "one", "--json"))
    assert (made["won"], made["state"], made["winner"]["identifier"]) == (True, "running", "one")
    asked = ("submit", "nightly", "shop.work", "--instance", "a")
    lost = call(*asked)
    assert (lost.exit_code, lost.stdout) == (1, "one (no node yet) does it: nothing was submitted\n")
    assert "grab¦nightly¦a" in told(call("job", "one"))
    assert "grab¦nightly¦a" in told(call("jobs"))
    assert node.order() == ["one"]
    assert call(*asked).stdout == "one (one, pid 0) has done it: nothing was submitted\n"
    assert listed(call("grabs", "nightly", "--json"))[0]["state"] == "complete"
    grab = coordinator.grab("nightly", "b", "server 1")
    client = coordinator.store._client
    before = client.pubsub_channels()

    def end() -> None:
        wait_until(lambda: client.pubsub_channels() != before)  # the command waits
        grab.complete({"rows": 3})

    ending = threading.Thread(target=end)
    ending.start()
    found = loaded(call("submit", "nightly", "shop.work", "--instance", "b", "--wait", "--json"))
    assert (found["state"], found["result"]) == ("succeeded", {"rows": 3})
    ending.join()
