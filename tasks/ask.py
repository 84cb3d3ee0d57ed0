"""`tasks.refresh`, the function with which a program requests a sync of a member."""


def refresh(member_id: str, pid: str | None = None, reason: str | None = None, *, complete: bool = False) -> str:
    """Send a request for a member's sync to the nodes, and return the id of the job: `tasks.requests.refresh`.

    `pid`: sync only this object. `complete`: list the member's objects from the beginning, not only the changes.
    """
    from tasks import requests  # imported here, so that a command that lists the commands starts fast

    return requests.refresh(member_id, pid, reason, complete=complete)
