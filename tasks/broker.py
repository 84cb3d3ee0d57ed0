"""The broker of the service, as the environment names it."""

from collections.abc import MutableMapping

from coordinator.extending import as_broker, sentinels_of

NAME = "CELERY_BROKER_URL"
MOVED = "CELERY_COORDINATOR_BROKER"
"""The variable that holds the broker's address for this process and its children, if it leads through Sentinel."""


def broker_of(environ: MutableMapping[str, str]) -> dict[str, object]:
    """Celery's settings for the broker. Raises ValueError.

    Celery prefers CELERY_BROKER_URL to its settings, and cannot read an address through Sentinel there. So such an
    address moves to another variable.
    """
    if sentinels_of(environ.get(NAME, "")):
        environ[MOVED] = environ.pop(NAME)
    return as_broker(own_address(environ) or environ.get("COORDINATOR_URL") or "redis://127.0.0.1:6379/0")


def own_address(environ: MutableMapping[str, str]) -> str | None:
    """The broker's address as the user wrote it; None where the coordinator's Redis is the broker."""
    return environ.get(NAME) or environ.get(MOVED)
