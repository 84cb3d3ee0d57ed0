"""Serves the members' HTTP API with uvicorn, which terminates TLS and may request client certificates."""

import ssl
from asyncio import Transport
from pathlib import Path

import uvicorn

from coordinator.extending import Prompt
from tasks.member_node.subjects import of_certificate
from tasks.web.app import MembersApp
from tasks.web.caller import SUBJECT


class NamedPeer(Prompt):
    """uvicorn's HTTP protocol, which also passes the subject of the verified client certificate to the app."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        tls = transport.get_extra_info("ssl_object")
        certificate = (tls and tls.getpeercert()) or {}
        self.app_state = {**self.app_state, SUBJECT: of_certificate(certificate.get("subject", ()))}
        super().connection_made(transport)


def config(
    app: MembersApp, address: str, port: int, certificate: Path | None, key: Path | None, authorities: Path | None
) -> uvicorn.Config:
    """The configuration of uvicorn. `certificate`, `key`: PEM files of this server; None: no TLS.

    `authorities`: PEM file of the authorities that sign members' client certificates; None: request no certificate.
    """
    return uvicorn.Config(
        app, host=address, port=port, http=NamedPeer, lifespan="off", log_level="warning", proxy_headers=False,
        server_header=False, timeout_graceful_shutdown=1, limit_concurrency=400, ssl_certfile=certificate,
        ssl_keyfile=key, ssl_ca_certs=str(authorities) if authorities else None,
        ssl_cert_reqs=ssl.CERT_OPTIONAL if authorities else ssl.CERT_NONE,
    )  # fmt: skip
