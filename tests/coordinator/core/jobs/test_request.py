"""What a submit asks for is honoured, or refused by name before anything is written."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery, chain

from coordinator import Coordinator, InvalidJob
from coordinator.core.jobs import validation
from coordinator.core.jobs.options import Backoff
from coordinator.core.jobs.request import JobRequest
from coordinator.scheduler.entry import tick_id
from tests.harness.hand_node import sketch

app = Celery("drafts", set_as_current=False)
coordinator = Coordinator(app, url="redis://127.0.0.1:1/0")


def _add(x: int, y: int) -> int:
    return x + y


add = app.task(_add, name="drafts.add")


def fields_of(request: JobRequest) -> dict[Any, Any]:
    return dict(zip(request.fields[::2], request.fields[1::2], strict=True))


def test_the_options_of_a_signature_are_honoured() -> None:
    options = {
        "countdown": 60,
        "expires": 120,
        "priority": 7,
        "task_id": "mine",
        "time_limit": 9,
        "soft_time_limit": 8,
        "link": [{"task": "t"}],
        "link_error": [{"task": "e"}],
        "headers": {"a": 1},
        "shadow": "shown",
        "queue": None,
    }
    request = sketch("a", options=options)
    fields = fields_of(request)
    assert (request.id, request.priority) == ("mine", 7)
    assert (request.not_before, fields["expires"]) == ("+60000", "+120000"), "Redis counts them"
    assert fields["limits"].split()[2] == "9000"
    assert fields["tell"] == 1
    for part in ('"soft": 8.0', '"shadow": "shown"', '"link"', '"link_error"', '"headers"'):
        assert part in fields["spec"]


def test_a_single_link_is_a_list_of_one() -> None:
    alone = add.s(1, 2).set(link=add.s(3), link_error=add.s(4))
    listed = add.s(1, 2).set(link=[add.s(3)], link_error=[add.s(4)])
    assert len({fields_of(sketch("a", options=one.options))["spec"] for one in (alone, listed)}) == 1


@pytest.mark.parametrize("link", [5, "shop.work", [add.s(1, 1), None], {"args": [1]}])
def test_a_link_that_is_no_signature_is_refused(link: Any) -> None:
    for name in ("link", "link_error"):
        with pytest.raises(InvalidJob, match=f"{name} is no signature of a task"):
            sketch("a", options={name: link})


def test_an_option_of_submit_wins_over_the_signatures() -> None:
    request = sketch(
        "a", priority=1, time_limit=5, job_id="ours", options={"priority": 7, "time_limit": 9, "task_id": "x"}
    )
    assert (request.priority, request.id, fields_of(request)["limits"].split()[2]) == (1, "ours", "5000")


@pytest.mark.parametrize(
    "name", ["reply_to", "chord", "group_id", "retry", "exchange", "routing_key", "serializer", "compression", "magic"]
)
def test_an_option_that_cannot_be_honoured_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidJob, match=f"cannot honour the option {name}"):
        sketch("a", options={name: "x"})


def test_a_time_without_a_zone_is_utc_and_texts_are_times_too() -> None:
    naive = sketch("a", not_before=datetime(2030, 1, 1))
    aware = sketch("a", options={"eta": "2030-01-01T01:00:00+01:00"})
    assert naive.not_before == aware.not_before == 1893456000000


def test_a_canvas_that_is_no_order_is_refused_with_a_way_out() -> None:
    with pytest.raises(InvalidJob, match="cannot be a job; submit its tasks"):
        coordinator.submit("a", add.chunks([(1, 2)], 1))


def test_an_option_that_says_the_usual_changes_nothing() -> None:
    usual = {"collect": None, "needs": (), "retry_on": (), "start_at": 0, "exclusive": False, "when_busy": "queue"}
    usual |= {"on_failure": "release", "priority": None, "max_losses": None, "rollback": None, "not_before": None}
    for signature in (add.s(1, 2), chain(add.s(1, 2), add.s(3))):
        made = [coordinator._request("a", signature, options | {"job_id": "j"}) for options in ({}, usual)]
        assert made[0] == made[1]


@pytest.mark.parametrize(
    ("signature", "options", "what"),
    [
        (chain(add.s(1, 2), add.s(3).set(link=add.s(1, 1))), {}, "step 1, drafts.add: cannot honour link there"),
        (chain(add.s(1, 2), add.s(3).set(countdown=5)), {}, "step 1, drafts.add: cannot honour countdown there"),
        (chain(add.s(1, 2), add.s(3)), {"start_at": 2}, "start_at 2: the chain has steps 0 to 1"),
        (add.s(1, 2), {"start_at": 1}, "start_at is for a chain"),
        (chain(add.s(1, 2), add.s(3)), {"collect": {}}, "collect is for calls of one task"),
        (add.s(1, 2), {"rollback": add.s(1, 1).set(link=add.s(1, 1))}, "rollback, drafts.add: cannot honour link"),
        (add.s(1, 2), {"on_failure": "explode"}, "on_failure 'explode': one of release, hold"),
        (add.s(1, 2), {"retry_delay": []}, "retry_delay is an empty list"),
        (add.s(1, 2), {"outbox": True}, "'outbox' .it belongs to submit_on_commit."),
        (add.s(1, 2), {"retry_delay": -1}, "retry_delay is seconds from 0"),
    ],
)
def test_an_order_that_cannot_be_honoured_is_refused_by_name(signature: Any, options: Any, what: str) -> None:
    with pytest.raises(InvalidJob, match=what):
        coordinator.submit("a", signature, **options)


@pytest.mark.parametrize("signature", ["drafts.add", None, {"args": [1]}, {"task": 3}, 5])
def test_what_is_no_signature_is_refused(signature: Any) -> None:
    with pytest.raises(InvalidJob, match="not a signature"):
        coordinator.submit("a", signature)


@pytest.mark.parametrize(
    "keys",
    ["", [], ["a", ""], ["a", "a"], "tab\t", "line\nbreak", "nul\0", "\x7f", "x" * 513, "ü" * 257,
     [f"k{i}" for i in range(17)],
     [None], 5, None, b"bytes", "\ud800", {"a": 1, "": 2}],
    ids=lambda keys: repr(keys)[:20],
)  # fmt: skip
def test_keys_that_cannot_be_keys_are_refused(keys: Any) -> None:
    with pytest.raises(InvalidJob):
        sketch(keys)


def test_bytes_are_named_as_they_are_given() -> None:
    with pytest.raises(InvalidJob, match="not b'order/1'"):
        sketch(b"order/1")  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["x" * 512, "ü" * 256, "a b", "{a}", "sync/urn:node:A", "*a", "'", '"', "\\", "🙂"])
def test_any_printable_text_is_a_key(key: str) -> None:
    assert sketch(key).keys == (key,)


@pytest.mark.parametrize(
    "options",
    [
        {"when_busy": "sometimes"},
        {"when_busy": None},
        {"job_id": ""},
        {"job_id": "a\nb"},
        {"job_id": "x" * 513},
        {"job_id": 5},
        {"job_id": "\ud800"},
        {"priority": 256},
        {"priority": -256},
        {"priority": 1.5},
        {"priority": True},
        {"priority": "high"},
        {"exclusive": 1},
        {"max_waiting": 0},
        {"max_attempts": -1},
        {"max_attempts": 0},
        {"max_attempts": 1.5},
        {"max_attempts": None},
        {"max_losses": -1},
        {"time_limit": 0},
        {"time_limit": -1},
        {"time_limit": "10"},
        {"time_limit": float("nan")},
        {"time_limit": float("inf")},
        {"time_limit": 1e11},
        {"soft_time_limit": 10, "time_limit": 10},
        {"max_lifetime": 0},
        {"retry_delay": -1},
        {"retry_delay": Backoff(first=-1)},
        {"retry_delay": Backoff(cap=float("inf"))},
        {"retry_on": ValueError},
        {"retry_on": "ValueError"},
        {"retry_on": [int]},
        {"not_before": "tomorrow"},
        {"not_before": 5},
        {"not_before": datetime(2030, 1, 1), "when_busy": "skip"},
        {"options": {"countdown": 5}, "when_busy": "defer"},
        {"options": {"countdown": "soon"}},
        {"options": {"countdown": float("nan")}},
        {"options": {"expires": "never"}},
        {"needs": "gpu"},
        {"needs": ["a\nb"]},
        {"needs": [""]},
        {"needs": 5},
        {"needs": [5]},
        {"collect": ["list"]},
        {"queue": "a\nb"},
        {"queue": "q" * 256},
        {"queue": "a\u202eb"},
        {"needs": ["l" * 256]},
        {"needs": ["a\x85b"]},
        {"args": (frozenset,)},
        {"kwargs": {"x": {1, 2, 3}.__iter__()}},
        {"args": ({"__type__": "no-such-type", "__value__": "x"},)},
        {"args": ("x" * 2_000_000,)},
    ],
    ids=lambda options: repr(options)[:40],
)
def test_an_option_that_does_not_fit_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob):
        sketch("a", **options)


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\u202a", "\u202e", "\u2066", "\u2069"])
def test_keys_and_ids_that_would_alter_the_line_around_them_are_refused(sign: str) -> None:
    with pytest.raises(InvalidJob, match="turns of the direction"):
        sketch(f"order{sign}7")
    with pytest.raises(InvalidJob, match="turns of the direction"):
        sketch("a", job_id=f"order{sign}7")
    assert sketch("a", args=(sign,), kwargs={"pids": [sign]}).keys == ("a",)  # data may have them


def test_a_tasks_name_of_256_bytes_is_refused_and_one_of_255_is_not() -> None:

    assert sketch("a", "t" * 255).keys == ("a",)
    for name in ("t" * 256, "a\u202eb"):
        with pytest.raises(InvalidJob, match=r"task .*: a name is 1 to 255 bytes of printable text"):
            sketch("a", name)


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        InvalidJob,
        match=r"\Agot an unexpected .*'max_atempts' .did you mean 'max_attempts'.*options of submit: .*max_attempts",
    ):
        coordinator.submit("a", add.s(1, 2), max_atempts=3)
    with pytest.raises(
        InvalidJob, match=r"'unknown' .did you mean 'if_unknown'.*, 'keep' .did you mean 'keep_instance'"
    ):
        coordinator.submit("a", add.s(1, 2), unknown="wait", keep=1)


def test_what_cannot_be_stored_is_refused_with_its_place_or_its_size() -> None:
    with pytest.raises(InvalidJob, match=r"shop\.work: argument .*fast.* is not JSON: object"):
        sketch("a", kwargs={"slow": 1, "fast": object()})
    with pytest.raises(InvalidJob, match=r"shop\.work: argument .*1.* is not JSON: object"):
        sketch("a", args=(1, object()))
    back = {"task": "shop.undo", "kwargs": {"n": object()}}
    with pytest.raises(InvalidJob, match=r"argument 'n' of the rollback is not JSON: object"):
        sketch("a", rollback=back)
    with pytest.raises(InvalidJob, match=r"argument 'n' of the link shop\.undo is not JSON: object"):
        sketch("a", options={"link": [back]})
    small = {"max_payload": 2048}
    assert sketch("a", args=("x" * 1900,), settings=small).keys == ("a",)
    with pytest.raises(InvalidJob, match=r"its arguments have 2\d\d\d bytes; at most 2048 \(setting max_payload\)"):
        sketch("a", args=("x" * 2048,), settings=small)


def test_arguments_that_kombu_can_say_come_back_as_they_were() -> None:
    when = datetime(2030, 1, 1, tzinfo=UTC)
    assert '"__type__"' in fields_of(sketch("a", args=(when,)))["spec"]


def test_what_is_refused_writes_nothing(coordinator: Coordinator) -> None:
    with pytest.raises(InvalidJob):
        coordinator.submit(["a", "a"], add.s(1, 2))
    assert list(coordinator.store._client.scan_iter(coordinator.store.prefix + "*")) == []


def test_a_start_in_the_far_future_is_kept_exactly() -> None:
    far = datetime(9999, 12, 31, tzinfo=UTC)
    assert sketch("a", not_before=far).not_before == round(far.timestamp() * 1000)
    assert sketch("a", not_before=datetime.now(UTC) - timedelta(days=1)).not_before > 0


LONE = "a\ud800"


@pytest.mark.parametrize(
    "asked",
    [
        lambda: sketch(LONE),
        lambda: sketch("a", task=LONE),
        lambda: sketch("a", needs=[LONE]),
        lambda: sketch("a", options={"queue": LONE}),
        lambda: sketch("a", options={"task_id": LONE}),
        lambda: sketch("a", rollback={"task": LONE}),
        lambda: validation.group("a", LONE),
    ],
)
def test_a_text_that_utf_8_cannot_say_is_named_before_anything_is_written(asked: Callable[[], object]) -> None:
    with pytest.raises(InvalidJob, match="ud800"):
        asked()


TICK = tick_id("sync/A", datetime(2026, 11, 22, 14, tzinfo=UTC))


@pytest.mark.parametrize("job_id", [str(TICK), "x@2026-11-22T14:00:00.500Z", "grab:", "grab:a/1"])
def test_the_id_of_a_tick_or_a_grab_is_refused_to_a_submit(job_id: str) -> None:
    for options in ({"job_id": job_id}, {"options": {"task_id": job_id}}):
        with pytest.raises(InvalidJob, match="reserved"):
            sketch("a", **options)
    assert sketch("a", job_id=TICK).id == "sync/A@2026-11-22T14:00:00Z", "a beat may"


@pytest.mark.parametrize("job_id", ["a@b", "2026-11-22T14:00:00Z", "a@2026-11-22", "a@2026-11-22T14:00:00Z/1", "grab"])
def test_an_id_that_only_resembles_that_of_a_tick_is_the_callers(job_id: str) -> None:
    assert sketch("a", job_id=job_id).id == job_id
