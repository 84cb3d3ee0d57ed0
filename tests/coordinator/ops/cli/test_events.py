"""The commands that set events, and list and show them."""

from coordinator import Coordinator
from tests.harness.command import Call, loaded, refused, told
from tests.harness.hand_node import Puppet

WHY = ("--why", "seen", "--by", "ann")


def test_an_event_is_set_once(call: Call, node: Puppet, coordinator: Coordinator) -> None:
    node.submit("k", job_id="gated", after=coordinator.event("approved/42"))
    planned = told(call("event", "set", "approved/42", "--dry-run", *WHY))
    assert planned == "event approved/42 is set, once and for all\n1 job waits for it and goes on"
    assert told(call("event", "set", "approved/42", "--value", '{"by": "ann"}', *WHY)) == "event approved/42 is set"
    again = call("event", "set", "approved/42", "--value", '{"by": "ann"}', *WHY)
    assert told(again) == "event approved/42 was set so before"
    other = refused(call("event", "set", "approved/42", "--value", "2", *WHY))
    assert other.startswith('Error: event \'approved/42\' is set already, to {"by": "ann"}: it keeps that value')
    assert "is set since" in told(call("event", "set", "approved/42", "--dry-run", *WHY))
    wrong = call("event", "set", "e", "--value", "x", *WHY)
    assert "Invalid value for '--value': value is a JSON value" in wrong.stderr
    assert loaded(call("event", "set", "e", "--json", *WHY)) == {"name": "e", "value": None, "set": True}
    assert coordinator.event("approved/42").value == {"by": "ann"}
    assert node.order() == ["gated"]


def test_events_are_listed_and_one_is_shown_with_those_that_wait(
    call: Call, node: Puppet, coordinator: Coordinator
) -> None:
    node.submit("k", job_id="gated", after=coordinator.event("approved/42"))
    coordinator.event("paid").set({"sum": 12}, by="ann", why="seen")
    heads, waited, was_set = told(call("event")).splitlines()
    assert heads.split() == ["EVENT", "WAITING", "SET", "BY", "WHY", "VALUE"]
    assert waited.split()[:2] == ["approved/42", "1"]
    assert was_set.split()[0] == "paid"
    assert was_set.endswith('ann  seen  {"sum": 12}')
    assert [one["name"] for one in loaded(call("event", "--json", "--prefix", "pa"))["events"]] == ["paid"]
    shown = told(call("event", "approved/42"))
    assert "waits for it" in shown
    assert "gated" in shown
    assert loaded(call("event", "show", "paid", "--json"))["event"]["value"] == {"sum": 12}
    coordinator.cancel("gated")
