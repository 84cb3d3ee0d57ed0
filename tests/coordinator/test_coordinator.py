"""The calls of a Coordinator refuse what cannot be meant, and say what can."""

from itertools import product
from typing import Any

import pytest
from celery import Celery

from coordinator import Coordinator, InvalidJob, SettingsError
from tests.harness.hand_node import Puppet, sketch

SIGNATURE = {"task": "shop.work", "args": []}


@pytest.fixture
def client() -> Coordinator:
    return Coordinator(url="redis://127.0.0.1:1/0")  # nothing answers there: a wrong call does not ask


@pytest.mark.parametrize("call", ["job", "wait", "why", "cancel", "retry", "move"])
@pytest.mark.parametrize("job", [None, 5, b"id", ["id"], SIGNATURE])
def test_a_job_is_named_by_its_id(client: Coordinator, call: str, job: Any) -> None:
    said = "name a job by its id or by its Submission, not by " if (call, job) != ("why", None) else "not nothing"
    with pytest.raises(InvalidJob, match=said):
        getattr(client, call)(job)


def test_a_submission_and_a_job_stand_for_their_id(node: Puppet, coordinator: Coordinator) -> None:
    submission = node.submit("a")
    assert coordinator.why(submission)
    assert coordinator.cancel(submission) == "cancelled"
    job = coordinator.wait(submission, 60)
    assert (coordinator.job(job), coordinator.retry(job)) == (job, "ready")


def test_a_submission_says_the_state_of_its_job(node: Puppet, coordinator: Coordinator) -> None:
    submission = coordinator._attach(node.submit("a"))
    assert (submission.state, submission.ready()) == ("ready", False)
    assert node.order() == [submission.id]
    assert (submission.state, submission.ready()) == ("succeeded", True)


@pytest.mark.parametrize("job", [SIGNATURE, ("a",), ("a", SIGNATURE, {}, 1), ("a", SIGNATURE, 1), "ab"])
def test_submit_many_names_the_form_of_a_job(client: Coordinator, job: Any) -> None:
    with pytest.raises(InvalidJob, match=r"submit_many takes \(keys, signature\) or \(keys, signature, \{options\}\)"):
        client.submit_many([job])


@pytest.mark.parametrize("call", ["lane", "release", "pause", "resume", "lock"])
def test_a_lane_and_a_lock_have_one_key(client: Coordinator, call: str) -> None:
    with pytest.raises(InvalidJob, match=r"give one (key|name), as text"):
        getattr(client, call)(["a", "b"]).__enter__()


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        *product(["lock"], ["ttl", "blocking_timeout"], ["5", float("inf"), True]),
        *product(["grab"], ["ttl", "keep"], ["5"]),
        ("wait", "timeout", "5"),
    ],
)
def test_the_times_of_a_call_are_seconds(client: Coordinator, call: str, name: str, value: Any) -> None:
    args = {"lock": ("a",), "grab": ("a", "1", "me"), "wait": ("a",)}[call]
    with pytest.raises(InvalidJob, match=f"{name}.* is a number of seconds from"):
        getattr(client, call)(*args, **{name: value}).__enter__()


@pytest.mark.parametrize("name", ["countdown", "eta", "expires", "link"])
def test_an_option_of_the_signature_is_named_with_its_place(name: str) -> None:
    with pytest.raises(InvalidJob, match=rf"'{name}' \(the signature has it: write task.s\(…\).set\({name}=…\)\)"):
        sketch("a", **{name: 3})


def test_arguments_belong_to_the_signature(client: Coordinator) -> None:
    with pytest.raises(InvalidJob, match=r"'args' \(the signature has the arguments: write task.s\(…\)\)"):
        client.submit("a", SIGNATURE, args=[1])  # type: ignore[call-arg]


def test_arguments_that_are_nested_too_deep_are_refused() -> None:
    app = Celery("deep", set_as_current=False)
    jobs = Coordinator(app, url="redis://127.0.0.1:1/0")

    @app.task(name="deep.work", shared=False)
    def work(nested: object) -> None: ...

    nested: list[object] = []
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(InvalidJob, match="nested deeper"):
        jobs.submit("a", work.s(nested))


def test_the_database_of_the_address_is_a_number() -> None:
    with pytest.raises(SettingsError, match="names a database that is not a number"):
        Coordinator(url="redis://localhost/abc")
