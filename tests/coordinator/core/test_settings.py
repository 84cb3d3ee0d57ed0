"""Settings: where each comes from, and that a slip of the pen is an error with a way out."""

from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from coordinator import Coordinator, Settings, SettingsError
from tests.harness.command import environment, loaded
from tests.harness.warm import python


def load(given: dict[str, Any] | None = None, conf: dict[str, Any] | None = None, **environ: str) -> Settings:
    return Settings.load(given or {}, conf or {}, environ)


def test_the_constructor_wins_over_the_app_and_the_app_over_the_environment() -> None:
    everywhere = load({"lock_ttl": 1.5}, {"coordinator_lock_ttl": 2.5}, COORDINATOR_LOCK_TTL="3.5")
    assert (everywhere.lock_ttl, everywhere.source("lock_ttl")) == (1.5, "constructor")
    two = load({}, {"coordinator_lock_ttl": 2.5}, COORDINATOR_LOCK_TTL="3.5")
    assert (two.lock_ttl, two.source("lock_ttl")) == (2.5, "app.conf")
    one = load(COORDINATOR_LOCK_TTL="3.5")
    assert (one.lock_ttl, one.source("lock_ttl")) == (3.5, "environment")
    assert (load().lock_ttl, load().source("lock_ttl")) == (15.0, "default")


@pytest.mark.parametrize("read_before", [True, False], ids=["configured", "not yet configured"])
@pytest.mark.parametrize("later", [True, False], ids=["config later", "config first"])
@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        ("CELERY", "CELERY_COORDINATOR_PREFIX"),
        ("CELERY_", "CELERY_COORDINATOR_PREFIX"),
        ("celery", "celery_coordinator_prefix"),
        ("SHOP", "SHOP_COORDINATOR_PREFIX"),
        ("CELERY", "COORDINATOR_PREFIX"),
        ("CELERY", "coordinator_prefix"),
        (None, "COORDINATOR_PREFIX"),
        (None, "CELERY_COORDINATOR_PREFIX"),  # as Celery's old names
        (None, "coordinator_prefix"),
    ],
)
def test_a_setting_counts_under_the_namespace_of_the_app_s_configuration(
    namespace: str | None, name: str, later: bool, read_before: bool
) -> None:
    def app(**conf: str) -> Celery:
        made = Celery("a", set_as_current=False)
        if read_before:
            assert made.conf.timezone is None
        if later:
            Coordinator(made)
        made.config_from_object(conf, namespace=namespace)
        if not later:
            Coordinator(made)
        return made

    settings = app(**{name: "staging"}).coordinator.settings
    assert (settings.prefix, settings.source("prefix")) == ("staging", "app.conf")
    changed = app(**{name: "staging"})
    changed.conf.coordinator_prefix = "production"
    assert (
        changed.coordinator.settings.prefix == changed.conf.coordinator_prefix
    )  # before 5.6 the namespace's, there too
    with pytest.raises(SettingsError, match=f"'{name[:-2]}'; did you mean '{name}'"):
        _ = app(**{name[:-2]: "staging"}).coordinator.settings


def test_the_settings_of_a_django_project_reach_the_command(tmp_path: Path) -> None:
    (tmp_path / "site_settings.py").write_text(
        "SECRET_KEY = 'x'\nCELERY_BROKER_URL = 'redis://127.0.0.1:1/1'\nCELERY_COORDINATOR_PREFIX = 'staging'\n"
        "CELERY_WORKER_DISABLE_PREFETCH = False\nCELERY_BROKER_CONNECTION_MAX_RETRIES = 7\n"
    )
    (tmp_path / "shop.py").write_text(
        "from celery import Celery\nfrom coordinator import Coordinator\napp = Celery('shop')\n"
        "app.config_from_object('django.conf:settings', namespace='CELERY')\nCoordinator(app)\n"
    )
    argv = ["-m", "coordinator", "-A", "shop", "settings", "--json"]
    environ = environment(DJANGO_SETTINGS_MODULE="site_settings")
    shown = loaded(python(argv, tmp_path, environ))
    assert shown["prefix"] == {"value": "staging", "from": "app.conf"}
    assert shown["url"] == {"value": "redis://127.0.0.1:1/1", "from": "broker_url"}


@pytest.mark.parametrize("read_before", [True, False], ids=["configured", "not yet configured"])
@pytest.mark.parametrize(("namespace", "begin"), [("CELERY", "CELERY_"), (None, "")])
def test_the_app_s_own_values_win_over_ours_in_a_module_too(
    namespace: str | None, begin: str, read_before: bool
) -> None:
    def named(name: str) -> str:
        return begin + (name.upper() if begin else name)

    app = Celery("a", set_as_current=False)
    own = {named("worker_disable_prefetch"): False, named("broker_connection_max_retries"): 7}
    app.config_from_object({named("broker_url"): "redis://127.0.0.1:1/1"} | own, namespace=namespace)
    if read_before:
        assert app.conf.broker_url
    Coordinator(app)
    assert (app.conf.worker_disable_prefetch, app.conf.broker_connection_max_retries) == (False, 7)
    assert app.conf.broker_channel_error_retry is True
    assert app.conf.worker_consumer == "coordinator.core.worker.bootstep:Consumer"
    assert app.conf.broker_transport_options["health_check_interval"] == 5


def test_none_is_no_value() -> None:
    assert load({"prefix": None}, {"coordinator_prefix": "mine"}).prefix == "mine"


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        (({"lock_tll": 1}, {}, {}), "argument 'lock_tll'; did you mean 'lock_ttl'"),
        (({}, {"coordinator_nod_ttl": 1}, {}), "'coordinator_nod_ttl'; did you mean 'coordinator_node_ttl'"),
        (({}, {}, {"COORDINATOR_SWEPT": "1"}), "'COORDINATOR_SWEPT'; did you mean 'COORDINATOR_SWEEP'"),
        (({"xyzzy": 1}, {}, {}), "known: url, password_file"),
    ],
)
def test_an_unknown_name_is_refused_with_the_likely_one(source: tuple[Any, Any, Any], hint: str) -> None:
    with pytest.raises(SettingsError, match=hint):
        Settings.load(*source)


@pytest.mark.parametrize(
    "given",
    [
        {"lock_ttl": 0},
        {"lock_ttl": "soon"},
        {"prefix": "with{brace}"},
        {"prefix": "with space"},
        {"prefix": ""},
        {"max_losses": -1},
        {"max_losses": 1.5},
        {"timeout": 0},
        {"sweep": float("nan")},
        {"lock_ttl": 1.0, "sweep": 1.0},
        {"node_ttl": 0.5, "sweep": 0.5},
    ],
    ids=repr,
)
def test_a_value_that_does_not_fit_is_refused_and_named(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(given))):
        load(given)


def test_a_url_that_leads_to_no_redis_is_refused_where_it_is_written() -> None:
    with pytest.raises(SettingsError, match=r"url \(environment\): the URL must begin with redis://"):
        load(COORDINATOR_URL="amqp://localhost")


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().lock_ttl = 1.0


def test_a_slow_sweep_is_not_taken_for_an_absence_of_redis() -> None:
    assert load({"sweep": 0.5}).gap == 2.0
    assert load({"sweep": 5.0, "lock_ttl": 30.0, "node_ttl": 30.0}).gap == 20.0


def test_labels_are_given_as_a_list_or_a_text() -> None:
    assert load({"labels": ["gpu", "ssd"]}).labels == load(COORDINATOR_LABELS="gpu, ssd").labels == ("gpu", "ssd")


def test_a_coordinator_refuses_a_wrong_setting_where_it_is_written() -> None:
    with pytest.raises(SettingsError, match="lock_ttl"):
        Coordinator(lock_tll=3)


def test_the_redis_of_the_coordinator_is_the_brokers_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COORDINATOR_URL", raising=False)
    app = Celery("a", broker="redis://127.0.0.1:1/1", set_as_current=False)
    assert Coordinator(app).settings.url == "redis://127.0.0.1:1/1"
    other = Celery("b", broker="redis://127.0.0.1:1/1", set_as_current=False)
    other.conf.coordinator_url = "redis://127.0.0.1:2/0"
    assert Coordinator(other).settings.url == "redis://127.0.0.1:2/0"
    third = Celery("c", broker="amqp://127.0.0.1//", set_as_current=False)
    with pytest.raises(SettingsError, match="COORDINATOR_URL"):
        _ = Coordinator(third).store


def test_an_app_has_one_coordinator_and_a_name() -> None:
    app = Celery("a", set_as_current=False)
    Coordinator(app)
    with pytest.raises(SettingsError, match="already"):
        Coordinator(app)
    with pytest.raises(SettingsError, match="name"):
        Coordinator(Celery(set_as_current=False))


def test_the_broker_options_that_a_half_open_connection_needs_are_set_unless_the_app_says_otherwise() -> None:
    app = Celery("a", broker="redis://127.0.0.1:1/1", backend="redis://127.0.0.1:1/2", set_as_current=False)
    app.conf.broker_transport_options = {"socket_timeout": 99}
    Coordinator(app)
    assert app.conf.broker_transport_options["socket_timeout"] == 99
    assert app.conf.broker_transport_options["health_check_interval"] == 5
    assert app.conf.result_backend_transport_options["socket_connect_timeout"] == 5
    assert app.conf.worker_cancel_long_running_tasks_on_connection_loss is False


@pytest.mark.parametrize("label", ["g" * 256, "a\u202eb", "a\nb"])
def test_a_label_that_is_no_name_is_refused_by_its_setting(label: str) -> None:
    with pytest.raises(
        SettingsError, match=r"setting labels \(environment\): label .*1 to 255 bytes of printable text"
    ):
        load(COORDINATOR_LABELS=f"ssd,{label}")
