"""The address of the coordinator's Redis: its schemes, what is secret in it, and the parts of one through Sentinel.

    redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],…/MASTER[/DB][?OPTION=VALUE&…]

`rediss+sentinel://` is the same over TLS. User and password are for the servers. An option `sentinel_NAME` is the
option NAME of the connections to the sentinels (`sentinel_username`, `sentinel_password`); they share the `ssl_…`
options with the servers unless they have their own. `sentinel_ssl=no` reaches the sentinels without TLS.

Nothing here connects: a client for threads and one for an event loop are made from the same parts.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

PORT = 26379  # the usual port of a sentinel
_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
# urlsplit knows no list of hosts: it refuses two IPv6 addresses.
_PARTS = re.compile(r"(rediss?)\+sentinel://([^/?]*@)?([^/?]*)([^?]*)\??(.*)")
_NO = ("no", "n", "false", "f", "0", "off")
_FORM = "redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DB"
_SECRET = re.compile(r"//[^/?]*@|([?&]\w*(?:username|password)=)[^&]*")


class Sentinels(NamedTuple):
    """`servers` and `sentinels`: the options of connections to each, as a URL without a host that redis-py's
    `parse_url` reads.
    """

    hosts: tuple[tuple[str, int], ...]
    master: str
    servers: str
    sentinels: str


def without_secrets(url: str) -> str:
    """The address of a Redis for messages: a URL has its password before the host, or among its parameters."""
    return _SECRET.sub(lambda found: (found[1] or "//") + "***" + ("" if found[1] else "@"), url)


def checked(url: str) -> str:
    """The same URL. Raises ValueError, which says what is wrong with it."""
    scheme = url.partition("://")[0]
    if scheme == "sentinel":
        raise ValueError(f"the URL of Celery's sentinels is written here as {_FORM}")
    if scheme not in _SCHEMES:
        named = ", ".join(f"{one}://" for one in _SCHEMES[:-1])
        raise ValueError(f"the URL must begin with {named} or {_SCHEMES[-1]}://")
    if sentinels_of(url) is None:
        _port(urlsplit(url))
    return url


def sentinels_of(url: str) -> Sentinels | None:
    """The parts of an address through Sentinel, None of any other. Raises ValueError, as `checked` does."""
    if (parts := _PARTS.fullmatch(url)) is None:
        return None
    scheme, logged_in, named, path, query = parts.groups("")
    hosts = tuple(_host(one) for one in named.split(",") if one.strip())
    if not hosts:
        raise ValueError(f"the URL names no sentinel: {_FORM}")
    master, _, database = path.strip("/").partition("/")
    if not master:
        raise ValueError(f"the URL has no name of a master behind the sentinels: {_FORM}")
    if database and not database.isdecimal():
        raise ValueError(f"the URL has no number of a database behind the master's name: {_FORM}")
    given = parse_qsl(query)
    ours = {name: value for name, value in given if not name.startswith("sentinel_")}
    theirs = {name: value for name, value in ours.items() if name.startswith("ssl_")}
    theirs |= {name.removeprefix("sentinel_"): value for name, value in given if name not in ours}
    plain = theirs.pop("ssl", "yes").lower() in _NO
    if plain:
        theirs = {name: value for name, value in theirs.items() if not name.startswith("ssl_")}
    return Sentinels(
        hosts,
        unquote(master),
        f"{scheme}://{logged_in}/{database or 0}?{urlencode(ours)}",
        f"{'redis' if plain else scheme}://{_login(theirs)}?{urlencode(theirs)}",
    )


def _host(named: str) -> tuple[str, int]:
    parts = urlsplit(f"//{named.strip()}")
    if not parts.hostname:
        raise ValueError(f"the URL names a sentinel without a host: {named.strip()!r}")
    return parts.hostname, _port(parts) or PORT


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError as error:
        raise ValueError(f"the URL has no port: {error}") from error


def _login(options: dict[str, str]) -> str:
    """Takes user and password out of the options, and puts them where a URL has them."""
    user, password = (quote(options.pop(name, ""), safe="") for name in ("username", "password"))
    return f"{user}:{password}@" if user or password else ""


def through_sentinels(broker: str, options: dict[str, object]) -> str:
    """The same servers as those of a broker that Celery names `sentinel://HOST;sentinel://HOST`, with these
    `broker_transport_options`; empty where these do not say which master.
    """
    parts = [urlsplit(one) for one in broker.split(";")]
    master, login = options.get("master_name"), options.get("sentinel_kwargs")
    if not master or any(one.scheme != "sentinel" for one in parts):
        return ""
    user, at, _ = parts[0].netloc.rpartition("@")
    hosts = ",".join(one.netloc.rpartition("@")[2] for one in parts)
    theirs = {f"sentinel_{name}": str(value) for name, value in login.items()} if isinstance(login, dict) else {}
    known = {name: value for name, value in theirs.items() if name in ("sentinel_username", "sentinel_password")}
    path = f"{quote(str(master), safe='')}/{parts[0].path.strip('/') or 0}"
    return f"redis+sentinel://{user}{at}{hosts}/{path}" + (f"?{urlencode(known)}" if known else "")


def as_broker(url: str) -> dict[str, object]:
    """Celery's own settings for the server at this address, as a broker. Raises ValueError."""
    if url.startswith("sentinel://"):
        checked(url)  # it has no name of a master
    if (found := sentinels_of(url)) is None:
        return {"broker_url": url}
    servers, sentinels = urlsplit(found.servers), urlsplit(found.sentinels)
    login = servers.netloc and f"{servers.netloc.rpartition('@')[0]}@"
    named = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in found.hosts]
    theirs: dict[str, object] = _tls(sentinels)
    theirs |= {"username": unquote(sentinels.username)} if sentinels.username else {}
    theirs |= {"password": unquote(sentinels.password)} if sentinels.password else {}
    over_tls = {"broker_use_ssl": _tls(servers)} if servers.scheme == "rediss" else {}
    return {
        "broker_url": ";".join(f"sentinel://{login}{one}{servers.path}" for one in named),
        "broker_transport_options": {
            "master_name": found.master,
            "sentinel_kwargs": theirs | ({"ssl": True} if sentinels.scheme == "rediss" else {}),
        },
        **over_tls,
    }


def _tls(parts: SplitResult) -> dict[str, object]:
    given = {name: value for name, value in parse_qsl(parts.query) if name.startswith("ssl_")}
    unchecked = given.get("ssl_check_hostname", "yes").lower() in _NO
    return {**given, **({"ssl_check_hostname": False} if unchecked else {})}
