"""`coordinator schedule`: the entries, what became of their ticks, and acts on them."""

import json
import re

from coordinator import Coordinator, Entry, SubmitOptions
from tests.coordinator.scheduler.beats import Beats, look_again
from tests.harness.command import Call, listed, refused, told
from tests.harness.redis import RedisServer

WAIT: SubmitOptions = {"if_unknown": "wait"}  # no node lives here


def test_schedule_lists_entries_and_shows_one_with_its_future_and_past(
    call: Call, coordinator: Coordinator, redis_server: RedisServer, prefix: str
) -> None:
    coordinator.entries.put(Entry("nightly", "0 0 3 ? * 2-6 *", "sync", key="night", zone="Europe/Berlin", submit=WAIT))
    coordinator.entries.put(Entry("often", 60, "sync", key="often", misfire="skip", submit=WAIT))
    lines = told(call("schedule")).splitlines()
    assert re.split("  +", lines[0]) == ["ENTRY", "WHEN", "NEXT", "LAST RUN", "BROKEN", "STARTS", "LANE", "STEERED"]
    assert "0 0 3 ? * 2-6 * (Europe/Berlin)" in lines[1]
    assert [one["name"] for one in listed(call("schedule", "--json", "--prefix", "n"))] == ["nightly"]
    beat = Beats(redis_server, prefix).beat()
    told(call("schedule", "run", "often", "--why", "by hand", "--by", "ann"))
    look_again(beat)
    shown = told(call("schedule", "often"))
    assert shown.count("\nthen") == 9
    assert "run now: queued" in shown
    assert re.search(r"last run +ready 20\d\d-", shown)
    assert "ready 20" in told(call("schedule", "--prefix", "often"))
    assert "ann: by hand" in shown
    assert ["misfire", "skip"] in [line.split() for line in shown.splitlines()]
    as_json = json.loads(told(call("schedule", "show", "often", "--json")))
    assert len(as_json["upcoming"]) == 10
    assert as_json["history"][0]["kind"] == "run"


def test_acts_say_what_they_did_by_whom_and_what_they_found(call: Call, coordinator: Coordinator) -> None:
    coordinator.entries.put(Entry("often", 3600, "sync", key="often", submit=WAIT))
    why = ("--why", "holiday", "--by", "ann")
    assert told(call("schedule", "pause", "often", *why)).strip() == "often is paused"
    assert told(call("schedule", "pause", "often", *why)).strip() == "often was paused already"
    assert "paused by ann" in told(call("schedule"))
    assert "holiday" in told(call("schedule", "often"))
    assert told(call("schedule", "resume", "often", *why)).strip() == "often goes on"
    assert "will not be sent at" in told(call("schedule", "skip", "often", *why))
    assert "omitted" in told(call("schedule", "often"))
    assert told(call("schedule", "change", "often", "0 0 1 * * ?", *why)).strip() == "often: 0 0 1 * * ? *"
    assert told(call("schedule", "change", "often", "every 30", *why)).strip() == "often: every 30"
    assert told(call("schedule", "restore", "often", *why)).strip() == "often: every 3600"
    assert "had its own schedule" in told(call("schedule", "restore", "often", *why))
    acts = [one["word"] for one in json.loads(told(call("schedule", "show", "often", "--json")))["history"]]
    assert [act.split()[0] for act in acts] == ["paused", "resumed", "omits", "changed", "changed", "restored"]
    assert acts[2].startswith("omits 20")
    assert acts[2].endswith("Z")


def test_wrong_input_is_named_with_the_way_out(call: Call, coordinator: Coordinator) -> None:
    coordinator.entries.put(Entry("often", 3600, "sync", key="often", submit=WAIT))
    assert "no entry 'nobody' in the schedule" in refused(call("schedule", "nobody"))
    assert "no entry 'nobody' in the schedule" in refused(call("schedule", "pause", "nobody", "--why", "x"))
    assert "write sec min hour" in refused(call("schedule", "change", "often", "weekly", "--why", "x"))
    assert "--why" in call("schedule", "pause", "often").stderr
    assert told(call("schedule", "show", "often"))
