"""Parses the URL of the coordinator's Redis, also one that leads through Sentinel or to a cluster, and converts between
such URLs and Celery's settings of a broker.

    redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],…/MASTER[/DB][?OPTION=VALUE&…]
    redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],…[?OPTION=VALUE&…]

`rediss+sentinel://` is the same over TLS. User and password are those of the Redis servers. An option `sentinel_NAME`
sets the option NAME of the connections to the sentinels (`sentinel_username`, `sentinel_password`). The `ssl_…` options
of the URL apply to servers and sentinels, unless `sentinel_ssl_…` sets another value for the sentinels. With
`sentinel_ssl=no`, the sentinels are reached without TLS. For a cluster, HOST:PORT are some of the nodes.

This module opens no connection. `store/sentinel.py` (threads) and `coordinator/aio` (event loops) connect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

PORT = 26379  # the default port of a sentinel
_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
# A regular expression, since urlsplit raises ValueError for a list of two IPv6 addresses.
_PARTS = re.compile(r"(rediss?)\+(sentinel|cluster)://([^/?]*@)?([^/?]*)([^?]*)\??(.*)")
_NO = ("no", "n", "false", "f", "0", "off")
_FORM = "redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DB"
_CLUSTER = "redis+cluster://HOST:PORT,HOST:PORT"
_QUOTE = "write # / ? @ : [ in it as %23 %2F %3F %40 %3A %5B"
_PROVIDER = "credential_provider"  # an option of Celery's URLs, since 5.6
_SECRET = re.compile(r"(//(?:[^:@/]*:(?=[^:;@/]*@[^@]*$))?).*@|([?&]\w*(?:username|password)=)[^&]*")


class SentinelAddress(NamedTuple):
    """The parts of an address that leads through Sentinel, or to a cluster.

    `hosts`: host and port of each sentinel, or of each named node of the cluster. `master`: the name of the master that
    the sentinels watch; "" for a cluster. `servers`, `sentinels`: the options of the connections to the Redis servers
    and to the sentinels, each as a URL without a host, for redis-py's `parse_url`.
    """

    hosts: tuple[tuple[str, int], ...]
    master: str
    servers: str
    sentinels: str


def without_secrets(url: str) -> str:
    """Replace the password in a URL by `***`, before the host and among the options, for messages. A user's name stays
    where one colon parts it from the password; any other text there may be one.
    """
    return _SECRET.sub(lambda match: f"{match[2]}***" if match[2] else f"{match[1]}***@", url)


def checked(url: str) -> str:
    """Check the URL of a Redis, and return it. Raises ValueError with the reason."""
    scheme = url.partition("://")[0]
    if scheme == "sentinel":
        raise ValueError(f"the coordinator's URL of a Redis behind Sentinel has another form than Celery's: {_FORM}")
    if scheme not in _SCHEMES:
        schemes = ", ".join(f"{scheme}://" for scheme in _SCHEMES[:-1])
        raise ValueError(f"the URL must begin with {schemes} or {_SCHEMES[-1]}://")
    if provider_in(url):
        raise ValueError(
            "the URL names a CredentialProvider, as Celery's may: name it by the setting credential_provider"
        )
    if through(url) is None:
        parts = split_url(url)
        if url.count("://") > 1:
            raise ValueError("the URL names several servers: name the one that the coordinator is to use")
        if scheme != "unix" and not (parts.path.strip("/") or "0").isdecimal():
            raise ValueError("the URL names a database that is not a number: write one, such as /0")
    return url


def sentinels_of(url: str) -> SentinelAddress | None:
    """Parse an address that leads through Sentinel; None for any other address. Raises ValueError for one that cannot
    be read.
    """
    return parts if (parts := through(url)) and parts.master else None


def through(url: str) -> SentinelAddress | None:
    """Parse an address that leads to another server after a failover: through Sentinel, or to a cluster. None for the
    address of a single server. Raises ValueError for one that cannot be read.
    """
    if (parts := _PARTS.fullmatch(url)) is None:
        return None
    scheme, kind, login, host_list, path, query = parts.groups("")
    if (not login and "@" in path + query) or set(login) & set("#[]"):
        raise ValueError(f"the URL has a user or a password that cannot be read; {_QUOTE}")
    if kind == "cluster":
        return _cluster(f"{scheme}://{login}/0?{query}", host_list, path.strip("/"))
    hosts = tuple(_host(host) for host in host_list.split(",") if host.strip())
    if not hosts:
        raise ValueError(f"the URL names no sentinel: {_FORM}")
    master, _, database = path.strip("/").partition("/")
    if not master:
        raise ValueError(f"the URL has no name of a master behind the sentinels: {_FORM}")
    if database and not database.isdecimal():
        raise ValueError(f"the URL names a database that is not a number, after the master's name: {_FORM}")
    options = parse_qsl(query)
    servers = {name: value for name, value in options if not name.startswith("sentinel_")}
    sentinels = {name: value for name, value in servers.items() if name.startswith("ssl_")}
    sentinels |= {name.removeprefix("sentinel_"): value for name, value in options if name not in servers}
    plain = sentinels.pop("ssl", "yes").lower() in _NO
    if plain:
        sentinels = {name: value for name, value in sentinels.items() if not name.startswith("ssl_")}
    return SentinelAddress(
        hosts,
        unquote(master),
        f"{scheme}://{login}/{database or 0}?{urlencode(servers)}",
        f"{'redis' if plain else scheme}://{_login(sentinels)}?{urlencode(sentinels)}",
    )


def _cluster(options: str, host_list: str, path: str) -> SentinelAddress:
    hosts = tuple(_host(host, 6379) for host in host_list.split(",") if host.strip())
    if not hosts:
        raise ValueError(f"the URL names no node of the cluster: {_CLUSTER}")
    if path not in ("", "0"):
        raise ValueError(f"the URL names a database, but a cluster has only database 0: {_CLUSTER}")
    return SentinelAddress(hosts, "", options, options)


def _host(address: str, port: int = PORT) -> tuple[str, int]:
    parts = split_url(f"//{address.strip()}")
    if not parts.hostname:
        raise ValueError("the URL names a server without a host")
    return parts.hostname, parts.port or port


def split_url(url: str) -> SplitResult:
    """Split a URL. The text of a ValueError for a wrong URL quotes nothing of the URL, which may contain a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError(
            f"the port in the URL is not a number; where a password contains special characters, {_QUOTE}"
        ) from None
    if parts.netloc and "@" not in parts.netloc and "@" in url:
        raise ValueError(f"the URL has a user or a password that cannot be read; {_QUOTE}")
    return parts


def _login(options: dict[str, str]) -> str:
    """Remove `username` and `password` from `options`, and return them as `USER:PASSWORD@`; "" without both."""
    user, password = (quote(options.pop(name, ""), safe="") for name in ("username", "password"))
    return f"{user}:{password}@" if user or password else ""


def from_broker(broker: str, tls: object) -> str:
    """Convert Celery's URL of a Redis broker into the form of `coordinator_url`. `tls`: Celery's `broker_use_ssl`.
    Raises ValueError for a URL, or for TLS options, that cannot be converted.
    """
    scheme, _, rest = broker.partition("://")
    parts = split_url(f"{'unix' if scheme == 'redis+socket' else scheme}://{rest}")
    options: dict[str, object] = dict(parse_qsl(parts.query))
    options.pop(_PROVIDER, None)
    if parts.scheme == "unix":
        options |= {"db": options.pop("virtual_host")} if "virtual_host" in options else {}
    else:
        # kombu reads TLS options from the URL or from broker_use_ssl, not from both.
        if not any(name.startswith("ssl_") for name in options):
            given = tls if isinstance(tls, Mapping) else {}
            if other := ", ".join(str(name) for name in given if not str(name).startswith("ssl_")):
                raise ValueError(f"broker_use_ssl has {other}, but for Redis it takes ssl_cert_reqs, ssl_ca_certs, …")
            options |= given
        if "ssl_cert_reqs" in options:
            named = getattr(options["ssl_cert_reqs"], "name", options["ssl_cert_reqs"])
            options["ssl_cert_reqs"] = str(named).lower().removeprefix("cert_")
        over_tls = any(name.startswith("ssl_") for name in options)
        parts = parts._replace(scheme="rediss" if over_tls else parts.scheme)
    return f"{parts.scheme}://{parts.netloc}{parts.path}" + (f"?{urlencode(options)}" if options else "")


def provider_in(broker: str) -> str:
    """Return the dotted name of the CredentialProvider in Celery's URL of a Redis broker; "" without one."""
    return dict(parse_qsl(broker.partition("?")[2])).get(_PROVIDER, "")


def through_sentinels(broker: str, options: dict[str, object]) -> str:
    """Convert Celery's broker URL `sentinel://HOST;sentinel://HOST` into `redis+sentinel://…`. `options`: Celery's
    `broker_transport_options`. Returns "" if the options name no master.
    """
    parts = [urlsplit(url) for url in broker.split(";")]
    master, login = options.get("master_name"), options.get("sentinel_kwargs")
    if not master or any(part.scheme != "sentinel" for part in parts):
        return ""
    user, at, _ = parts[0].netloc.rpartition("@")
    hosts = ",".join(part.netloc.rpartition("@")[2] for part in parts)
    renamed = {f"sentinel_{name}": str(value) for name, value in login.items()} if isinstance(login, dict) else {}
    known = {name: value for name, value in renamed.items() if name in ("sentinel_username", "sentinel_password")}
    path = f"{quote(str(master), safe='')}/{parts[0].path.strip('/') or 0}"
    return f"redis+sentinel://{user}{at}{hosts}/{path}" + (f"?{urlencode(known)}" if known else "")


def as_broker(url: str) -> dict[str, object]:
    """Return Celery's settings (`broker_url`, …) that make the Redis at the coordinator's URL `url` the broker. Raises
    ValueError for a URL that cannot be read.
    """
    if url.startswith("sentinel://"):
        checked(url)  # always raises: a URL in Celery's form does not name the master
    if (parts := sentinels_of(url)) is None:
        over_socket = re.sub(r"([?&])db=", r"\1virtual_host=", url.replace("unix://", "redis+socket://", 1))
        return {"broker_url": over_socket if url.startswith("unix://") else url}
    servers, sentinels = urlsplit(parts.servers), urlsplit(parts.sentinels)
    login = servers.netloc and f"{servers.netloc.rpartition('@')[0]}@"
    hosts = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in parts.hosts]
    options: dict[str, object] = _tls(sentinels)
    options |= {"username": unquote(sentinels.username)} if sentinels.username else {}
    options |= {"password": unquote(sentinels.password)} if sentinels.password else {}
    over_tls = {"broker_use_ssl": _tls(servers)} if servers.scheme == "rediss" else {}
    return {
        "broker_url": ";".join(f"sentinel://{login}{host}{servers.path}" for host in hosts),
        "broker_transport_options": {
            "master_name": parts.master,
            "sentinel_kwargs": options | ({"ssl": True} if sentinels.scheme == "rediss" else {}),
        },
        **over_tls,
    }


def _tls(parts: SplitResult) -> dict[str, object]:
    options = {name: value for name, value in parse_qsl(parts.query) if name.startswith("ssl_")}
    unchecked = options.get("ssl_check_hostname", "yes").lower() in _NO
    return {**options, **({"ssl_check_hostname": False} if unchecked else {})}
