"""People look at members in the dashboard of the service, and act on one there."""

import re
import subprocess
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import httpx
import pytest

from tests.harness.command import ROOT, Run, argv_of, environment, told
from tests.tasks.conftest import RIVER, SAMPLE, document

TOKEN = "a-token-for-tests"


@pytest.fixture
def listing(run: Run, tmp_path: Path) -> None:
    told(run("nodelist", "import", document(tmp_path, *SAMPLE)))


@pytest.fixture
def browser(own: dict[str, str], tmp_path: Path, listing: None) -> Iterator[httpx.Client]:
    """At the dashboard of the service, which is a process of its own."""
    argv = argv_of("dashboard", "--port", "0", "--token", TOKEN)
    env = environment(**own, PYTHONPATH=str(ROOT))
    with subprocess.Popen(argv, env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            address = process.stdout.readline().split()[-1]
            with httpx.Client(base_url=address.partition("?")[0], timeout=60) as browser:
                browser.get(f"/?token={TOKEN}")
                yield browser
        finally:
            process.terminate()


def test_members_are_found_read_and_acted_on(browser: httpx.Client) -> None:
    name = RIVER.identifier
    page = browser.get("/members").text
    assert f"{len(SAMPLE)} members" in page
    assert RIVER.schedule
    assert " ".join(RIVER.schedule.parts) in unescape(page)
    assert "No node or beat keeps it." in page
    found = browser.get("/members", params={"text": name.rpartition(":")[2].upper()}).text
    assert set(re.findall(r'href="/member\?id=([^"]+)"', found)) == {name.replace(":", "%3A")}
    assert "No member has this" in browser.get("/members?text=nobody").text
    assert browser.get("/api/member", params={"id": name}).json()["member"] == name
    assert len(browser.get("/api/members").json()) == len(SAMPLE)
    form = browser.get("/act/member-reset", params={"id": name}).text
    token = re.search(r'name="_token" value="(\w+)"', form)
    assert token
    sent = {"_token": token[1], "why": "a wrong base", "id": name}
    said = browser.post("/act/member-reset", data=sent, headers={"Sec-Fetch-Site": "same-origin"}).text
    assert 'class="done"' in said, said
    assert "a wrong base" in browser.get("/actions").text
