"""The lane of a grab has one name, which commands and pages show, and take."""

import re
from html import unescape
from urllib.parse import parse_qsl, urlsplit

import pytest

from coordinator import Coordinator, InvalidJob, LeaseLost
from coordinator.ops.dashboard import dashboard
from tests.coordinator.ops.dashboard.stage import TOKEN, TestClient
from tests.harness.command import Call, listed, loaded, told
from tests.harness.hand_node import Puppet

SAID = ("--why", "so")


def test_the_name_that_commands_show_of_a_grabs_lane_is_the_one_that_they_take(
    coordinator: Coordinator, call: Call
) -> None:
    grab, node = coordinator.grab("backup", "monday", "host-a"), Puppet(coordinator.store)
    node.up()
    node.submit("backup", job_id="j", instance="tuesday")
    node.must_take()
    _, tuesday = (lane["key"] for lane in listed(call("lanes", "--json")))
    shown = [line.split()[0] for line in call("lanes").stdout.splitlines() if "backup" in line]
    assert "host-a" in call("why", "--key", shown[0]).stdout
    assert shown[0] in call("lane", shown[0]).stdout
    for name in (shown[1], tuesday, f"{shown[1][:-3]}*"):
        assert [job["id"] for job in loaded(call("jobs", "--key", name, "--json"))["jobs"]] == ["j"]
    assert "is paused" in told(call("pause", shown[0], *SAID))
    assert "goes on" in told(call("resume", shown[0], *SAID))
    assert [one["act"] for one in listed(call("actions", "--thing", f"lane {shown[0]}", "--json"))] == [
        "resume",
        "pause",
    ]
    assert "is taken from" in told(call("release", shown[0], *SAID))
    with pytest.raises(LeaseLost):
        grab.complete()
    node.order()


def test_each_link_and_act_of_a_page_with_a_grabs_lane_works(coordinator: Coordinator) -> None:
    grab = coordinator.grab("backup", "monday", "host-a")
    client = TestClient(dashboard(coordinator, token=TOKEN, hosts=["testserver"]))
    client.headers["Authorization"] = f"Bearer {TOKEN}"
    pages = [client.get(path).text for path in ("/lanes", "/locks", "/grabs")]
    links = {unescape(one) for page in pages for one in re.findall(r'href="(/(?:lane|job|act)[^"]*)"', page)}
    assert len(links) > 4
    assert {link: status for link in links if (status := client.get(link).status_code) != 200} == {}
    release = next(link for link in links if "/act/release?" in link)
    form = dict(parse_qsl(urlsplit(release).query)) | {"why": "so"}
    assert "is taken from" in client.post("/act/release", data=form).text
    with pytest.raises(LeaseLost):
        grab.complete()


def test_a_key_that_ends_in_a_slash_is_one_lane_and_only_a_star_names_many(
    coordinator: Coordinator, call: Call
) -> None:
    node = Puppet(coordinator.store)
    node.up()
    for key in ("https://cn/", "https://cn/v2"):
        node.submit(key, job_id=key)
    assert [job["id"] for job in loaded(call("jobs", "--key", "https://cn/", "--json"))["jobs"]] == ["https://cn/"]
    call("pause", "https://cn/", *SAID)
    assert [coordinator.lane(key).paused for key in ("https://cn/", "https://cn/v2")] == [True, False]
    assert told(call("resume", "https://cn/*", "--yes", *SAID)) == "resume: 1 lane"
    for key in ("https://cn/*", "grab¦a¦b"):
        with pytest.raises(InvalidJob, match="names all keys that begin so"):
            coordinator.submit(key, {"task": "shop.work"})
    node.order()
