"""`coordinator dashboard`: the pages, served by uvicorn on a port of their own."""

from __future__ import annotations

import secrets
from urllib.parse import quote

import click

from coordinator.cli.session import listen, with_coordinator
from coordinator.client.coordinator import Coordinator


@click.command()
@click.option("--address", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", default=5556, show_default=True, type=click.IntRange(0, 65535), help="The port; 0: a free one.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A name by which browsers reach this machine.")
@click.option("--token", envvar="COORDINATOR_DASHBOARD_TOKEN", help="The token to log in with.  [default: a new one]")
@click.option("--user-header", metavar="NAME", help="Take the user from this header, instead of a token.")
@click.option("--proxy", "proxies", multiple=True, metavar="ADDRESS", help="The proxy that sets --user-header.")
@click.option("--mount", "mounts", multiple=True, metavar="PATH", help="Serve an extension's app, without the login.")
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
        import uvicorn  # an extra, and slow to load

        from coordinator import dashboard as pages
        from coordinator.local.prompt import Prompt
    except ImportError as error:
        raise click.ClickException(f"{error}: pip install 'celery-coordinator[dashboard]'") from error
    if bool(user_header) != bool(proxies):
        raise click.UsageError("--user-header and --proxy belong together: only that proxy is believed")
    if unknown := {*mounts} - {at for one in coordinator.extensions for at in one.mounts}:
        raise click.UsageError(f"no extension has an app for {', '.join(sorted(unknown))}")
    if coordinator.app is not None:
        from coordinator.client.app_check import import_modules

        import_modules(coordinator.app)  # in the main thread: no page does
    token = token or secrets.token_urlsafe(24)
    auth = pages.from_proxy(user_header, proxies, coordinator.settings.operators) if user_header else None
    app = pages.dashboard(coordinator, auth=auth, token=token, hosts=(address, *hosts), mounts=mounts)
    config = uvicorn.Config(
        app, host=address, port=port, http=Prompt, log_level="warning", proxy_headers=False, server_header=False,
        timeout_graceful_shutdown=1, limit_concurrency=400,
    )  # fmt: skip
    listening = listen(address, port)
    name = f"[{address}]" if ":" in address else address
    query = "" if auth else f"?token={quote(token)}"
    click.echo(f"The dashboard of {coordinator.settings.prefix}: http://{name}:{listening.getsockname()[1]}/{query}")
    uvicorn.Server(config).run([listening])
