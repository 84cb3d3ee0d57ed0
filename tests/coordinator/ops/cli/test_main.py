"""`coordinator …` as people and programs call it."""

import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from coordinator import Coordinator, SettingsError
from coordinator.local.redis import free_port
from coordinator.ops.cli.main import cli
from tests.harness.command import ROOT, Call, Done, environment, listed, loaded, refused, told
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import python, start


@pytest.fixture
def waiting(coordinator: Coordinator) -> Iterator[list[str]]:
    """Two jobs in one lane and one in another; no node lives."""
    task = {"task": "shop.ship", "args": [42], "kwargs": {}, "options": {}}
    ids = [coordinator.submit(key, task, if_unknown="wait").id for key in ("order/1", "order/1", "stock/7")]
    yield ids
    for job_id in ids:
        coordinator.cancel(job_id)


def test_jobs_lists_what_is_kept_and_can_be_narrowed(call: Call, waiting: list[str]) -> None:
    assert {job["id"] for job in loaded(call("jobs", "--json"))["jobs"]} == set(waiting)
    assert {job["id"] for job in loaded(call("jobs", "--key", "order/1", "--json"))["jobs"]} == set(waiting[:2])
    assert [job["id"] for job in loaded(call("jobs", "--state", "waiting", "--json"))["jobs"]] == [waiting[1]]
    assert len(loaded(call("jobs", "--most", "2", "--json"))["jobs"]) == 2
    assert all(job_id in call("jobs").stdout for job_id in waiting)


def test_a_state_that_no_job_can_have_is_refused(call: Call) -> None:
    wrong = call("jobs", "--state", "runing")
    assert (wrong.exit_code, "'rolling_back'" in wrong.stderr) == (2, True)


def test_a_command_of_a_group_is_suggested_where_its_name_stands_alone(call: Call) -> None:
    wrong = call("drain", "one")
    assert (wrong.exit_code, "did you mean 'nodes drain'" in wrong.stderr) == (2, True)


def test_the_id_of_a_coalesced_job_is_not_listed_as_a_job_of_its_own(call: Call, coordinator: Coordinator) -> None:
    task = {"task": "shop.ship", "args": [], "kwargs": {}, "options": {}}
    first, second, coalesced = (
        coordinator.submit("order/1", task, when_busy="defer", if_unknown="wait") for _ in range(3)
    )
    listed = {job["id"] for job in loaded(call("jobs", "--json"))["jobs"]}
    for submission in (second, first):
        coordinator.cancel(submission.id)
    assert coalesced.outcome == "coalesced"
    assert coalesced.id not in listed


def test_lanes_lists_those_that_begin_with_the_prefix(call: Call, waiting: list[str]) -> None:
    (lane,) = listed(call("lanes", "order/", "--json"))
    assert (lane["key"], lane["length"], lane["state"]) == ("order/1", 2, "ready")
    assert "stock/7" not in call("lanes", "order/").stdout
    assert "stock/7" in call("lanes").stdout


def test_lanes_shows_who_holds_one_that_is_parked_retrying_or_held(call: Call, node: Puppet) -> None:
    node.submit("r", job_id="retries", max_attempts=2)
    node.finish(node.must_take(), "raised", delay=10**6)
    node.submit("h", job_id="is held", on_failure="hold")
    node.finish(node.must_take(), "failed")
    node.submit("p", job_id="is parked")
    taken = node.must_take()
    parked = ("parked", '{"ids": ["other"], "one": true}', 0, *[""] * 4, "one", taken.runner, "", 60000)
    node.store.step("job_finish", taken.id, taken.token, *parked)
    holds = {"r": ("retrying", "retries"), "h": ("held", "is held"), "p": ("parked", "is parked")}
    rows = {row.split()[0]: row for row in call("lanes").stdout.splitlines()}
    assert {key: tuple(text for text in holds[key] if text in rows[key]) for key in holds} == holds, rows
    for _, job_id in holds.values():
        node.lanes.cancel(job_id)
    node.store.step("parked_take", "shop", 10)


def test_sorters_lists_those_that_hold_orders(call: Call, coordinator: Coordinator) -> None:
    assert listed(call("sorters", "--json")) == []
    task = {"task": "shop.ship", "args": [], "kwargs": {}, "options": {}}
    coordinator.sorter("stock", idle_timeout=60).add("7", "order/1", task, if_unknown="wait")
    (held,) = listed(call("sorters", "--json"))
    assert (held["name"], held["collected"], held["flushing"]) == ("stock", 1, 0)
    heads, row = call("sorters").stdout.splitlines()
    assert heads.split() == ["SORTER", "COLLECTED", "FLUSHING", "FIRST", "DUE"]
    assert row.startswith("stock ")
    assert "is held by the sorter stock" in call("why", "stock/7").stdout
    assert "No node is alive: stock/7 waits for one to put it in line" in call("why", "stock/7").stdout
    coordinator.cancel("stock/7")


def test_status_counts_jobs_and_says_what_is_wrong(call: Call, waiting: list[str]) -> None:
    result = call("status")
    assert "2 ready, 1 waiting" in result.stdout
    assert "no node is alive" in result.stderr
    assert "keeps nothing on disk" in result.stderr
    assert loaded(call("status", "--json"))["jobs"] == {"ready": 2, "waiting": 1}


def test_status_tells_since_when_no_node_sweeps(call: Call, coordinator: Coordinator) -> None:
    store = coordinator.store
    node = Puppet(store)
    node.up()
    assert "none yet" in call("status").stdout
    node.sweep()
    told = call("status")
    assert "sweep  last 0." in told.stdout
    assert "swept" not in told.stderr
    store._client.hset(store.key("swept"), "last", store.now() - 60_000)
    assert "no node has swept for 60 s" in call("status").stderr


def test_a_wrong_prefix_names_those_that_are_here(own_redis: RedisServer, call: Call) -> None:
    url, here = own_redis.url(0), Coordinator(url=own_redis.url(0), prefix="shop")
    Puppet(here.store).up()
    Puppet(here.store).sweep()
    here.close()
    told = call("status", COORDINATOR_URL=url, COORDINATOR_PREFIX="shpo").stderr
    assert "no node ever ran under the prefix 'shpo', but under 'shop'" in told
    assert "under the prefix" not in call("status", COORDINATOR_URL=url, COORDINATOR_PREFIX="shop").stderr


def test_a_redis_that_keeps_its_data_and_evicts_nothing_is_not_warned_of(own_redis: RedisServer, call: Call) -> None:
    url = own_redis.url(0)
    assert [one["code"] for one in loaded(call("status", "--json", COORDINATOR_URL=url))["findings"]] == ["node.none"]
    with own_redis.client() as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
    assert "may evict jobs and locks (allkeys-lru)" in call("status", COORDINATOR_URL=url).stderr


def test_a_redis_that_only_takes_snapshots_is_warned_of(own_redis: RedisServer, call: Call) -> None:
    with own_redis.client() as client:
        client.config_set("appendonly", "no")
        client.config_set("save", "3600 1")
    assert "may lose the last minutes" in call("status", COORDINATOR_URL=own_redis.url(0)).stderr


def test_job_shows_the_record_and_cancel_ends_it(call: Call, waiting: list[str]) -> None:
    assert "shop.ship" in call("job", waiting[1]).stdout
    assert loaded(call("job", waiting[1], "--json"))["keys"] == ["order/1"]
    assert call("cancel", waiting[1], "--why", "no longer wanted").stdout == f"{waiting[1]} is cancelled\n"
    record = loaded(call("job", waiting[1], "--json"))
    assert record["state"] == "cancelled"
    assert call("cancel", waiting[1], "--why", "x").stdout == f"{waiting[1]} is cancelled\n"


def test_wait_tells_success_from_its_opposite(call: Call, waiting: list[str], coordinator: Coordinator) -> None:
    assert "is still waiting" in refused(call("wait", waiting[1], "--timeout", "0.1"))
    coordinator.cancel(waiting[1])
    result = call("wait", waiting[1])
    assert (result.exit_code, "cancelled" in result.stdout) == (1, True)


@pytest.mark.parametrize("url", ["redis://:secret@127.0.0.1:1/0", "redis://127.0.0.1:1/0?db=0&password=secret"])
def test_settings_say_where_each_comes_from_and_hide_the_password(call: Call, url: str) -> None:
    found = loaded(call("settings", "--json", COORDINATOR_URL=url, COORDINATOR_SWEEP="0.25"))
    assert found["sweep"] == {"value": 0.25, "from": "environment"}
    assert found["slice"]["from"] == "default"
    assert "secret" not in loaded(call("settings", "--json", COORDINATOR_URL=url))["url"]["value"]
    assert ":secret@" not in call("settings", COORDINATOR_URL=url).output


@pytest.mark.parametrize("command", ["job", "wait"])
def test_an_unknown_job_is_named(call: Call, command: str) -> None:
    assert "no job is kept under the id 'order-77'" in refused(call(command, "order-77"))


def test_a_redis_that_is_away_is_named_without_its_password(call: Call) -> None:
    line = refused(call("status", COORDINATOR_URL=f"redis://:secret@127.0.0.1:{free_port()}/0"))
    assert "Redis at redis://:***@127.0.0.1" in line
    assert "COORDINATOR_URL" in line
    assert "secret" not in line


@pytest.mark.parametrize("group", ["nodes drain", "schedule change", "libraries remove"])
def test_the_help_of_a_subcommand_needs_no_app_and_no_redis(call: Call, group: str) -> None:
    assert f"Usage: coordinator {group} [OPTIONS]" in told(call(*group.split(), "--help", COORDINATOR_URL=None))


def test_without_app_and_redis_both_ways_out_are_named(call: Call) -> None:
    line = refused(call("jobs", COORDINATOR_URL=None))
    assert "-A" in line
    assert "COORDINATOR_URL" in line


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere", "no app 'nowhere'"),
        ("empty", "no Celery app in 'empty'"),
        ("broken", "'broken' cannot be imported: ZeroDivisionError"),
        ("lacking", "'lacking' cannot be imported: ModuleNotFoundError: No module named 'not_installed'"),
        ("plain", "'plain' has no coordinator"),
        ("plain:nothing", "there is no 'nothing' in the module 'plain'; it has plain:app"),
    ],
)
def test_an_app_that_cannot_be_had_is_named(call: Call, name: str, says: str) -> None:
    Path("empty.py").touch()
    Path("broken.py").write_text("1 / 0")
    Path("lacking.py").write_text("import not_installed")
    Path("plain.py").write_text("from celery import Celery\napp = Celery('plain', set_as_current=False)\n")
    try:
        assert says in refused(call("-A", name, "status"))
    finally:
        sys.modules.pop(name, None)
        sys.path.remove(str(Path.cwd()))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[tool.coordinator]\napp = "nowhere"', "no app 'nowhere'"),
        ("[tool.coordinator]", "no app and no Redis"),
        ("[tool.coordinator", "pyproject.toml cannot be read"),
    ],
)
def test_the_folders_project_names_the_app(call: Call, text: str, says: str) -> None:
    Path("pyproject.toml").write_text(text)
    assert says in refused(call("status", COORDINATOR_APP=None, COORDINATOR_URL=None))


def test_a_setting_with_a_slip_is_named_with_the_right_one(call: Call) -> None:
    assert "did you mean 'COORDINATOR_PREFIX'" in refused(call("status", COORDINATOR_PREFFIX="x"))


def test_the_dashboards_token_in_the_environment_disturbs_no_command(call: Call) -> None:
    told(call("jobs", COORDINATOR_DASHBOARD_TOKEN="x"))


@pytest.mark.parametrize(
    ("variable", "value", "coloured"), [("TERM", "xterm", True), ("TERM", "dumb", False), ("NO_COLOR", "1", False)]
)
def test_nothing_is_coloured_where_the_terminal_shows_no_colours(
    coordinator: Coordinator, variable: str, value: str, coloured: bool
) -> None:
    env = {
        "COORDINATOR_URL": coordinator.settings.url,
        "COORDINATOR_PREFIX": coordinator.settings.prefix,
        "TERM": "xterm",
    }
    done = CliRunner().invoke(cli, ["doctor"], env={**env, variable: value}, color=True)
    assert ("\x1b" in done.stdout, "node.none" in done.stdout) == (coloured, True)


def test_a_dashboard_whose_port_is_taken_says_so_in_one_line(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"cannot serve at 127.0.0.1:{port}: " in refused(call("dashboard", "--port", port))


def test_a_wrong_command_is_a_usage_error(call: Call) -> None:
    result = call("jobz")
    assert (result.exit_code, "'jobz'" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    "args",
    [
        ("jobs", "--since", "tomorrow"),
        ("jobs", "--since", "-5m"),
        ("jobs", "--until", "9999999999d"),
        ("jobs", "--after", "x"),
        ("jobs", "--after", "WzIsIFsieCJdXQ=="),
        ("jobs", "--after", "WzEsIFsieCIsInkiLCJ6Il1d"),
        ("jobs", "--after", "Wzk5LCBbXV0="),
        ("lane", "two\nlines"),
        ("job", "nobody"),
        ("why", "--entry", "nobody"),
        ("-A", "nowhere", "jobs"),
        ("nodes", "show", "nobody"),
    ],
)
def test_what_is_called_wrongly_is_said_in_one_line_with_the_status_2(call: Call, args: tuple[str, ...]) -> None:
    done = call(*args)
    assert (done.exit_code, bool(refused(done))) == (2, True)


def test_commands_in_an_answer_have_the_app_of_the_call_and_a_cursor_is_quoted(
    call: Call, coordinator: Coordinator, waiting: list[str]
) -> None:
    Path("paste.py").write_text(
        "from celery import Celery\nfrom coordinator import Coordinator\n"
        "app = Celery('paste', set_as_current=False)\ncoordinator = Coordinator(app)\n"
    )
    try:
        told(call("-A", "paste", "pause", "order/1", "--why", "x"))
        assert "frees it: coordinator -A paste resume order/1 --why …" in told(call("-A", "paste", "why", waiting[1]))
        assert "frees it: coordinator resume order/1 --why …" in told(call("why", waiting[1], COORDINATOR_APP="paste"))
        coordinator.store._client.hset(coordinator.store.key("swept"), "last", "0")  # it had a node before
        assert "fix: celery -A paste worker" in call("-A", "paste", "doctor").stdout
        told(call("resume", "order/1", "--why", "x"))
    finally:
        sys.modules.pop("paste", None)
        sys.path.remove(str(Path.cwd()))
    told(call("pause", "a b", "--why", "x"))
    assert call("lanes", "--most", "1").stderr == "more: --after 'a b'\n"
    told(call("resume", "a b", "--why", "x"))


APP = """
import click
from celery import Celery
from coordinator import Coordinator, Extension, SettingsError

app = Celery("depot")
coordinator = Coordinator(app)


@click.command()
def stock():
    "What is there."
    click.echo("none")


coordinator.extend(Extension("shop", commands=[stock]))
"""


def test_an_apps_commands_stand_beside_the_librarys(tmp_path: Path) -> None:
    (tmp_path / "depot.py").write_text(APP)

    def run(*args: str) -> Done:
        return python(["-m", "coordinator", *args], tmp_path, environment())

    assert run("-A", "depot", "stock").stdout == "none\n"
    help_text = run("-A", "depot", "--help").stdout
    assert "What is there." in help_text
    assert "status" in help_text
    assert run("-A", "depot", "shelf").returncode == 2


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("localhost:6379", "setting url (environment): the URL must begin with redis://, rediss://, unix://"),
        ("http://localhost:6379", "setting url (environment): the URL must begin with redis://, rediss://, unix://"),
        ("redis://localhost:port", "the port in the URL is not a number"),
        ("redis://localhost:{http}", "the server at this address is not a Redis. COORDINATOR_URL names this Redis"),
        ("redis://localhost:{locked}", "requires a password: redis://:PASSWORD@HOST. COORDINATOR_URL names this Redis"),
        ("redis://:wrong@localhost:{locked}", "refuses this user or password. COORDINATOR_URL names this Redis"),
        ("redis://:secret@localhost:{locked}/99", "has no database of this number"),
        ("redis://localhost:1", "Is it running? COORDINATOR_URL names this Redis"),
        ("redis://me:secret@localhost:1", "Redis at redis://me:***@localhost:1"),
    ],
)
def test_a_wrong_address_is_told_in_one_line_with_the_way_out(
    call: Call, strangers: dict[str, int], url: str, says: str
) -> None:
    assert says in refused(call("status", COORDINATOR_URL=url.format(**strangers)))


def test_a_login_that_fails_is_told_by_the_settings_that_name_it(
    call: Call, tmp_path: Path, strangers: dict[str, int]
) -> None:
    url, password = f"redis://me@localhost:{strangers['locked']}", tmp_path / "password"
    (tmp_path / "guarded.py").write_text(
        "from celery import Celery\nfrom coordinator import Coordinator\n"
        "app = Celery('guarded', set_as_current=False)\n"
        f"app.conf.coordinator_url, app.conf.coordinator_password_file = {url!r}, {str(password)!r}\n"
        "coordinator = Coordinator(app)\n"
    )
    setting = "by the setting password_file (app.conf), user 'me'"
    for content, why in ((None, f"no login, {setting}: FileNotFoundError"), ("wrong", f"or password, {setting}.")):
        if content:
            password.write_text(content)
        line = refused(call("-A", "guarded", "status"))
        assert why in line
        assert "Is it running" not in line
        assert "coordinator_url (app.conf) names this Redis" in line
        assert "COORDINATOR_URL" not in line
        found = call("-A", "guarded", "doctor").stdout
        assert "mend the login, or read its log, or name another: coordinator_url (app.conf)" in found
    del sys.modules["guarded"]


class Stranger(BaseHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Its words would be taken for the command's."""


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """A server that is no Redis, and a Redis with a password; their ports."""
    http = HTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    with RedisServer(tmp_path_factory.mktemp("locked")) as locked:
        with locked.client() as client:
            client.config_set("requirepass", "secret")
        yield {"http": http.server_port, "locked": locked.port}
    http.shutdown()
    http.server_close()
    thread.join(60)


def test_a_url_in_the_place_of_the_app_is_refused_with_the_way_out() -> None:
    with pytest.raises(SettingsError, match=r"not a Celery app; .* Coordinator\(url='redis://…'\)"):
        Coordinator("redis://:secret@localhost")  # type: ignore[arg-type]


def test_a_command_that_an_app_may_have_says_how_to_name_the_app(call: Call) -> None:
    wrong = call("nodelist")
    assert (wrong.exit_code, "if it is one of your app's, name the app with -A" in wrong.stderr) == (2, True)


def test_an_app_behind_the_command_is_told_where_it_belongs(call: Call) -> None:
    for option in ("-A", "--app"):
        wrong = call("doctor", option, "shop")
        assert (wrong.exit_code, "-A goes before the command: coordinator -A APP" in wrong.stderr) == (2, True)
    assert "No such option" in call("doctor", "--foo").stderr


def test_doctor_reads_an_app_too(call: Call) -> None:
    Path("checked.py").write_text(
        "from celery import Celery\nfrom coordinator import Coordinator\n"
        "app = Celery('checked', broker='memory://', set_as_current=False)\nCoordinator(app)\n"
        "@app.task(shared=False, rate_limit='1/m', coordinate={'key': '{nobody}'})\ndef work(): ...\n"
    )
    try:
        result = call("-A", "checked", "doctor")
        assert (result.exit_code, "error [app.coordinate] (task checked.work)" in result.stdout) == (2, True)
        alone = call("-A", "checked", "check")
        assert (alone.exit_code, {line.split("]")[0] for line in alone.stdout.splitlines() if "[" in line}) == (
            2, {"error [app.coordinate", "info [app.rate-limit"},
        )  # fmt: skip
        assert "check reads an app: name the app" in call("check").stderr
    finally:
        sys.modules.pop("checked", None)
        sys.path.remove(str(Path.cwd()))


def test_the_connections_of_a_command_are_named_so(
    coordinator: Coordinator, waiting: list[str], redis_server: RedisServer, prefix: str
) -> None:
    env = environment(COORDINATOR_URL=redis_server.url(0), COORDINATOR_PREFIX=prefix)
    with start(["-m", "coordinator", "wait", waiting[0]], ROOT, env) as process, redis_server.client() as looks:
        name = f"coordinator:command:{socket.gethostname()}"
        wait_until(lambda: name in {client["name"] for client in looks.client_list()})
        process.terminate()
