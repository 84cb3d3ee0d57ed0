"""The request for a sync, as programs call it: `tasks.refresh`."""


def refresh(member_id: str, pid: str | None = None, reason: str | None = None, *, complete: bool = False) -> str:
    """See `tasks.requests.refresh`."""
    from tasks import requests  # whoever only lists commands needs none

    return requests.refresh(member_id, pid, reason, complete=complete)
