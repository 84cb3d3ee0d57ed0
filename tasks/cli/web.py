"""`coordinator web`: serves the HTTP interface for members on a port of its own."""

import ipaddress
from pathlib import Path

import click

from coordinator.extending import listen

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _addresses(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Check the values of an option, and return them. Raises BadParameter for one that is no IP address or network."""
    for text in texts:
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            raise click.BadParameter(f"{error}; give an IP address or network, not a host name", ctx, param) from error
    return texts


@click.command()
@click.option("--address", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", default=8443, show_default=True, type=click.IntRange(0, 65535), help="The port; 0: a free one.")
@click.option("--certificate", type=_FILE, help="PEM file of this server's certificate: TLS ends here.")
@click.option("--key", type=_FILE, help="PEM file of its key, where it is apart.")
@click.option("--client-ca", type=_FILE, help="PEM file of the authorities that may vouch for members' certificates.")
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    callback=_addresses,
    help="The proxy that sets --subject-header, or its network: 10.0.0.7, 10.0.0.0/24.",
)
@click.option("--subject-header", metavar="NAME", help="The header that has the subject of the member's certificate.")
def web(
    address: str,
    port: int,
    certificate: Path | None,
    key: Path | None,
    client_ca: Path | None,
    proxies: tuple[str, ...],
    subject_header: str | None,
) -> None:
    """Serve member nodes over HTTP, until Ctrl-C: they request the harvest of their objects, and read the list.

    A member authenticates with its token, or with a certificate that this server or a proxy in front of it checks.
    """
    if bool(subject_header) != bool(proxies) or (proxies and client_ca):
        raise click.UsageError("--proxy and --subject-header belong together, and not with --client-ca")
    if (client_ca or key) and not certificate:
        raise click.UsageError("--client-ca and --key need --certificate")
    try:
        import uvicorn  # imported here: it comes with the extra `dashboard`, and is slow to import

        from tasks.web import Callers, MembersApp
        from tasks.web.server import config
    except ImportError as error:
        raise click.ClickException(f"{error}: pip install 'celery-coordinator[dashboard]'") from error
    app = MembersApp(Callers(subject_header or "", proxies))
    made = config(app, address, port, certificate, key, client_ca)
    listening = listen(address, port)
    if not certificate and not ipaddress.ip_address(listening.getsockname()[0]).is_loopback:
        click.echo("without --certificate, tokens travel unencrypted: use TLS in a proxy in front of this", err=True)
    name = f"[{address}]" if ":" in address else address
    click.echo(f"Members: http{'s' * bool(certificate)}://{name}:{listening.getsockname()[1]}/cn/v2")
    uvicorn.Server(made).run([listening])
