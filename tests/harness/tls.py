"""Certificates of the tests for Redis over TLS, by an authority that nobody else knows."""

from pathlib import Path
from urllib.parse import urlencode

import trustme


class Certificates:
    """One for servers, on the loopback addresses, and one for clients; both sides want to see the other's."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        self._authority, self._cert, self._key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        issued = authority.issue_cert("127.0.0.1", "localhost")
        authority.cert_pem.write_to_path(self._authority)
        issued.cert_chain_pems[0].write_to_path(self._cert)
        issued.private_key_pem.write_to_path(self._key)

    @property
    def of_server(self) -> dict[str, str]:
        """Options of redis-server, with their values."""
        return {
            "tls-ca-cert-file": str(self._authority),
            "tls-cert-file": str(self._cert),
            "tls-key-file": str(self._key),
        }

    @property
    def of_client(self) -> dict[str, str]:
        """As redis-py names them, in keywords and in a URL."""
        return {"ssl_ca_certs": str(self._authority), "ssl_certfile": str(self._cert), "ssl_keyfile": str(self._key)}

    @property
    def query(self) -> str:
        return urlencode(self.of_client)
