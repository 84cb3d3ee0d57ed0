"""The broker of the service, as the environment names it."""

from collections.abc import MutableMapping

from coordinator.address import as_broker, sentinels_of

NAME = "CELERY_BROKER_URL"
MOVED = "CELERY_COORDINATOR_BROKER"
"""Where this process and its children have the broker's address, if it leads through Sentinel."""


def broker_of(environ: MutableMapping[str, str]) -> dict[str, object]:
    """Celery's settings. Celery prefers CELERY_BROKER_URL to them and cannot read an address through Sentinel. So that
    goes to another name. Raises ValueError.
    """
    if sentinels_of(environ.get(NAME, "")):
        environ[MOVED] = environ.pop(NAME)
    return as_broker(given(environ) or environ.get("COORDINATOR_URL") or "redis://127.0.0.1:6379/0")


def given(environ: MutableMapping[str, str]) -> str | None:
    """The address of a broker of its own, as the user wrote it."""
    return environ.get(NAME) or environ.get(MOVED)
