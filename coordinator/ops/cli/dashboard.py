"""The command `coordinator dashboard`: serves the dashboard's pages by uvicorn, on a port of their own."""

from __future__ import annotations

import secrets
from socket import gethostname
from urllib.parse import quote

import click

from coordinator.coordinator import Coordinator
from coordinator.ops.cli.session import listen, with_coordinator


@click.command()
@click.option("--address", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", default=5556, show_default=True, type=click.IntRange(0, 65535), help="The port; 0: a free one.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A name by which browsers reach this machine.")
@click.option("--token", envvar="COORDINATOR_DASHBOARD_TOKEN", help="The token to log in with.  [default: a new one]")
@click.option("--user-header", metavar="NAME", help="Take the user from this header, instead of a token.")
@click.option("--proxy", "proxies", multiple=True, metavar="ADDRESS", help="The proxy that sets --user-header.")
@click.option("--mount", "mounts", multiple=True, metavar="PATH", help="Serve an extension's app, without login.")
@with_coordinator
def dashboard(
    coordinator: Coordinator, address: str, port: int, hosts: tuple[str, ...], token: str | None,
    user_header: str | None, proxies: tuple[str, ...], mounts: tuple[str, ...],
) -> None:  # fmt: skip
    """Serve pages about the lanes, jobs, nodes and the schedule, until Ctrl-C.

    Needs Redis only: it works while workers and the broker are down. Prints an address with a token that logs a
    browser in. Behind a proxy that knows its users, give --user-header and --proxy; the setting `operators` names
    those who may act.
    """
    try:
        import uvicorn  # imported here: an optional dependency, and slow to import

        from coordinator.local.prompt import Prompt
        from coordinator.ops import dashboard as pages
    except ImportError as error:
        raise click.ClickException(f"{error}: pip install 'celery-coordinator[dashboard]'") from error
    if bool(user_header) != bool(proxies):
        raise click.UsageError("give --user-header and --proxy together: only the proxy may set the header")
    if unknown := {*mounts} - {at for one in coordinator.extensions for at in one.mounts}:
        raise click.UsageError(f"no extension has an app for {', '.join(sorted(unknown))}")
    if coordinator.app is not None:
        from coordinator.ops.app_check import import_modules

        import_modules(coordinator.app)  # here, in the main thread: a page that checks the app does not import it
    token = token or secrets.token_urlsafe(24)
    auth = pages.from_proxy(user_header, proxies, coordinator.settings.operators) if user_header else None
    app = pages.dashboard(coordinator, auth=auth, token=token, hosts=(address, *hosts), mounts=mounts)
    coordinator.store.connections.call_it("dashboard", gethostname())
    config = uvicorn.Config(
        app, host=address, port=port, http=Prompt, log_level="warning", proxy_headers=False, server_header=False,
        timeout_graceful_shutdown=1, limit_concurrency=400,
    )  # fmt: skip
    listening = listen(address, port)
    name = f"[{address}]" if ":" in address else address
    query = "" if auth else f"?token={quote(token)}"
    click.echo(f"The dashboard of {coordinator.settings.prefix}: http://{name}:{listening.getsockname()[1]}/{query}")
    uvicorn.Server(config).run([listening])
