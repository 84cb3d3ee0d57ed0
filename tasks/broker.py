"""Reads the address of the service's broker from the environment, for Celery's settings."""

from collections.abc import MutableMapping

from coordinator.extending import as_broker, sentinels_of

NAME = "CELERY_BROKER_URL"
MOVED = "CELERY_COORDINATOR_BROKER"
"""The environment variable to which `broker_of` moves the value of CELERY_BROKER_URL, if that names Sentinels."""


def broker_of(environ: MutableMapping[str, str]) -> dict[str, object]:
    """Celery's settings for the broker that `environ` names. Raises ValueError for an invalid address.

    Celery prefers CELERY_BROKER_URL to its settings, and cannot parse an address through Sentinel there. So such an
    address moves, within `environ`, from that variable to CELERY_COORDINATOR_BROKER.
    """
    if sentinels_of(environ.get(NAME, "")):
        environ[MOVED] = environ.pop(NAME)
    return as_broker(own_address(environ) or environ.get("COORDINATOR_URL") or "redis://127.0.0.1:6379/0")


def own_address(environ: MutableMapping[str, str]) -> str | None:
    """The broker's address in the environment, as the user wrote it; None: the coordinator's Redis is the broker."""
    return environ.get(NAME) or environ.get(MOVED)
