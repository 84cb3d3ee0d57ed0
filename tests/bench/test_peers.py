"""The benchmark beside peers, without a measurement: what it makes of results, and of its arguments."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.__main__ import commands
from bench.peers.__main__ import arguments, status, written
from bench.peers.field import HOLDERS, OURS, PEERS
from bench.peers.plot import BARS, COLOURS, Bar, Chart, svg
from bench.peers.report import charts, tables

SVG = "{http://www.w3.org/2000/svg}"
PEERS_FOLDER = Path(__file__).parents[2] / "bench" / "peers"


def a_peer(name: str, rates: list[float], effects: int = 500) -> dict[str, Any]:
    return {"name": name, "rates": rates, "submitted": 500, "effects": effects}


@pytest.fixture
def results() -> dict[str, Any]:
    ran = [a_peer(OURS, [1900, 2000, 2400]), a_peer("rq", [500, 400, 600])]
    lock = {"name": "pottery", "alone": [900, 1000, 1100], "held": [60, 70, 50], "longest": [1500, 1200, 1300]}
    return {
        "jobs": [{"body": "file", "keys": 1000, "peers": ran}],
        "locks": [lock],
        "not_run": [{"name": "procrastinate", "title": "procrastinate 3.10.0", "reason": "no PostgreSQL"}],
    }


def row(text: str, title: str) -> str:
    (found,) = [line for line in text.splitlines() if line.startswith(title)]
    return " ".join(found.split())


def test_a_row_has_the_median_the_spread_our_multiple_and_the_promises(results: dict[str, Any]) -> None:
    text = tables(results)
    assert row(text, "RQ 3.0.0") == "RQ 3.0.0 500 400 to 600 x 4.00 500 at once no counts as failed no"
    assert row(text, "celery-coordinator") == "celery-coordinator 2,000 1,900 to 2,400 500 at once yes runs again yes"
    assert row(text, "pottery") == "pottery 3.0.1 Redlock 1,000 900 to 1,100 60 1,300 ms no no no"


def test_the_table_says_which_shape_it_is_and_which_peer_did_not_run(results: dict[str, Any]) -> None:
    text = tables(results)
    assert "a byte to a file; 1,000 keys" in text
    assert row(text, "procrastinate") == "procrastinate 3.10.0: not run: no PostgreSQL"


def test_jobs_that_never_took_effect_are_told(results: dict[str, Any]) -> None:
    assert "never took effect" not in tables(results)
    results["jobs"][0]["peers"][1] = a_peer("rq", [500], effects=490)
    assert "rq, a byte to a file; 1,000 keys: 10 of 500 never took effect" in tables(results)


def test_there_is_no_multiple_where_ours_did_not_run(results: dict[str, Any]) -> None:
    del results["jobs"][0]["peers"][0]
    assert row(tables(results), "RQ 3.0.0") == "RQ 3.0.0 500 400 to 600 500 at once no counts as failed no"


def test_only_our_own_failure_is_one_of_the_run(results: dict[str, Any]) -> None:
    assert status(results) == 0
    results["not_run"].append({"name": OURS, "title": "celery-coordinator", "reason": "no effect in 60 s"})
    assert status(results) == 1


def test_the_json_and_the_plot_are_written_beside_the_table(results: dict[str, Any], tmp_path: Path) -> None:
    written(results, tmp_path / "new")
    found = json.loads((tmp_path / "new" / "peers.json").read_text())
    assert found["jobs"] == results["jobs"]
    assert found["not_run"] == results["not_run"]
    assert {peer["name"]: peer["order"] for peer in found["peers"]}["procrastinate"] == "yes"
    titles = [text.text for text in ElementTree.parse(tmp_path / "new" / "peers.svg").iter(f"{SVG}text")]
    assert {"jobs/s: a byte to a file; 1,000 keys", "RQ 3.0.0", "2,000", "pottery 3.0.1 Redlock"} <= {*titles}


def test_bars_are_as_long_as_medians_and_ours_stands_out(results: dict[str, Any]) -> None:
    _, ours, peer, *_ = ElementTree.fromstring(svg(charts(results))).iter(f"{SVG}rect")
    assert float(ours.attrib["width"]) == pytest.approx(4 * float(peer.attrib["width"]), rel=0.01)
    assert [ours.attrib["fill"], peer.attrib["fill"]] == [COLOURS[True], COLOURS[False]]


def test_the_line_of_a_bar_goes_from_the_lowest_value_to_the_highest() -> None:
    (line,) = ElementTree.fromstring(svg([Chart("a < b", [Bar("x & y", 5, 8, 10, False)])])).iter(f"{SVG}line")
    assert float(line.attrib["x2"]) - float(line.attrib["x1"]) == pytest.approx(BARS / 2)


def test_an_argument_with_a_dash_goes_to_the_benchmark_before_it() -> None:
    assert commands(["keyed", "peers", "--full", "--to=there"]) == [["keyed"], ["peers", "--full", "--to=there"]]


def test_all_benchmarks_are_those_that_install_nothing() -> None:
    everything = commands([])
    assert ["keyed"] in everything
    assert ["peers"] not in everything


@pytest.mark.parametrize("given", [["--full", "peers"], ["peer"]])
def test_a_wrong_argument_is_refused(given: list[str]) -> None:
    with pytest.raises(SystemExit, match=r"before its arguments|choose from"):
        commands(given)


def test_a_run_without_arguments_has_three_rounds_of_eight_seconds() -> None:
    options = arguments([])
    assert (options.rounds, options.seconds, options.full, options.only) == (3, 8.0, False, None)
    assert arguments(["--only=ours,rq"]).only == ["ours", "rq"]


@pytest.mark.parametrize(("folder", "field"), [("adapters", PEERS), ("locks", HOLDERS)])
def test_each_peer_has_a_module_of_its_own_and_pinned_versions(folder: str, field: Any) -> None:
    assert {one.name for one in field} <= {path.stem for path in (PEERS_FOLDER / folder).glob("*.py")}
    assert all("==" in pinned for one in field for pinned in one.requirements)
    assert [one.name for one in field if not one.requirements] == [OURS]
