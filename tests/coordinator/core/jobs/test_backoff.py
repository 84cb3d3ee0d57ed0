"""How long a job waits before its next attempt."""

from coordinator.core.jobs.backoff import delay_of


def test_a_policy_doubles_up_to_its_cap_and_its_jitter_goes_down_to_nothing() -> None:
    plain = {"retry_delay": {"first": 1.0, "cap": 5.0, "jitter": False}}
    assert [delay_of(plain, tries, 9.0) for tries in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    jittered = {"retry_delay": {"first": 1.0, "cap": 5.0, "jitter": True}}
    found = [delay_of(jittered, 1000, 9.0) for _ in range(500)]
    assert min(found) < 0.5
    assert 4.5 < max(found) <= 5.0
    assert [delay_of({"retry_delay": [1, 7]}, tries, 9.0) for tries in range(4)] == [1.0, 7.0, 7.0, 7.0]
    assert 0 <= delay_of({}, 0, 0.5) <= 0.5
