"""`coordinator refresh`: requests a member's synchronization, and with --wait shows its progress and outcome."""

import math
import sys
import time

import click

from coordinator import Job, UnknownJob
from coordinator.extending import act_options
from tasks import members, requests
from tasks.app import coordinator
from tasks.catalog import one_object
from tasks.cli.nodelist import still_lacking
from tasks.harvest.outcome import STORED
from tasks.nodelist.protocol import WRITTEN
from tasks.service import service

TAKEN_IN = 10.0  # seconds to wait until a node has read the request from its queue
LOOK = 0.1  # seconds between two reads of the job's state


@click.command()
@click.argument("member")
@click.option("--pid", metavar="PID", help="Only this object, whatever its date.")
@click.option("--complete", is_flag=True, help="All objects from the member's beginning that the catalog lacks.")
@click.option("--wait", is_flag=True, help="Wait and show the progress; exit status 0 if it succeeds.")
@act_options
def refresh(member: str, pid: str | None, complete: bool, wait: bool, why: str, by: str, ticket: str) -> None:
    """Synchronize MEMBER now."""
    job_id = members.refresh(member, pid, complete=complete, why=why, by=by, ticket=ticket)
    if not wait:
        click.echo(f"asked for {member}. To wait for it: coordinator wait {job_id}")
        if pid is not None:
            click.echo(f"the job's result says under pids what became of {pid}")
        if not coordinator.nodes():
            click.echo(f"no node is alive now: the request waits in the queue {requests.QUEUE}", err=True)
        return
    job = _watch(job_id)
    if pid is not None:
        _print_object(member, pid, job)
    else:
        _print(member, job)


def _print(member: str, job: Job) -> None:
    """Print how a member's synchronization ended. If it did not succeed, raises ClickException, for exit status 1."""
    if job.state != "succeeded":
        raise click.ClickException(f"{member}: {job.state}: {_words(job)}")
    result = job.result or {}
    if result.get("outcome") == "not synchronizable":
        raise click.ClickException(f"{member}: {result['outcome']}: {result.get('reason')}")
    counts = ", ".join(
        f"{result[name]} {name}" for name in ("listed", "stored", "unchanged", "failed") if name in result
    )
    click.echo(f"{member}: {result.get('outcome', job.state)}: {result.get('reason') or counts}")
    if result.get("store", WRITTEN) not in (None, WRITTEN) and (why := still_lacking(member)):
        click.echo(f"the nodelist's permanent store lacks the new dates yet: {why}", err=True)


def _print_object(member: str, pid: str, job: Job) -> None:
    """Print whether an object is stored now, even if the run that was to fetch it failed for another reason.

    Raises ClickException, for exit status 1, if the object is not stored.
    """
    end = (job.result or {}).get("pids", {}).get(pid) or _in_catalog(member, pid, job)
    if end != STORED:
        raise click.ClickException(f"{member}: {pid} is not stored: {end}")
    click.echo(f"{member}: {pid} is stored")


def _in_catalog(member: str, pid: str, job: Job) -> str:
    """Return the outcome of one object from the catalog, since the job's result does not have it: STORED, or why not.

    A result lacks the object if the run failed, or had too many objects for its result.
    """
    noted = one_object.read(service().catalog, member, pid)
    if job.fence is not None and noted.fence is not None and noted.fence >= job.fence:
        return STORED
    if noted.failed_at is not None and job.taken is not None and noted.failed_at >= job.taken:
        return str(noted.reason)
    return _words(job)


def _words(job: Job) -> str:
    """Return the reason why a job did not succeed, from its error or its result."""
    reason = (job.error or {}).get("message") or (job.result or {}).get("reason")
    return str(reason or f"its job {job.state}, and no reason was kept")


def _watch(job_id: str) -> Job:
    """Wait for the end of a job, and return the job. Raises ClickException if no node takes the request in 10 seconds.

    Shows the progress on stderr: on a terminal in one line that changes, else in a line for each state.
    """
    live, shown = sys.stderr.isatty(), ""
    deadline = time.monotonic() + TAKEN_IN
    while True:
        try:
            job = coordinator.store.insist(lambda: coordinator.job(job_id), math.inf, "the wait")
        except UnknownJob:
            if time.monotonic() > deadline:
                raise click.ClickException(
                    f"no node took the request within {TAKEN_IN:g} s. It still waits in the queue {requests.QUEUE} "
                    f"(is a node alive? coordinator nodes), or a node refused it (why: coordinator refused)"
                ) from None
            time.sleep(LOOK)
            continue
        done, total = job.progress or (0, 0)
        line = f"{job.state} {done}/{total}" if live and job.progress else job.state
        line += f" on {job.node}" if job.node else ""
        if line != shown:
            click.echo(f"\r\x1b[K{line}" if live else line, err=True, nl=not live or job.over)
            shown = line
        if job.over:
            return job
        time.sleep(LOOK)
