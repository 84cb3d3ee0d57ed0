"""The command `coordinator` beside a real fleet."""

from tests.harness.command import Call, listed, loaded
from tests.harness.fleet import Fleet


def test_submit_with_wait_shows_the_result_and_its_exit_status_tells(fleet: Fleet, call: Call) -> None:
    fleet.worker()
    done = loaded(call("submit", "k", "tests.harness.apps.shop.add", "--args", "[1, 2]", "--wait", "--json"))
    assert (done["state"], done["result"]) == ("succeeded", 3)
    failed = call("submit", "k", "tests.harness.apps.shop.fail", "--wait")
    assert (failed.exit_code, "ValueError: no" in failed.stdout) == (1, True)


def test_nodes_and_finished_jobs_show_on_a_real_fleet(fleet: Fleet, call: Call) -> None:
    fleet.worker()
    job_id = fleet.coordinator.submit("order/1", fleet.shop.add.s(1, 2)).id
    assert loaded(call("wait", job_id, "--json"))["result"] == 3
    (node,) = listed(call("nodes", "--json"))
    assert (node["name"], node["capacity"]) == ("one@test", 2)
    assert "one@test" in call("nodes").stdout
    assert "1 alive" in call("status").stdout
