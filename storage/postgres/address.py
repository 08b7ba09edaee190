"""Where a store on a server is: its URL taken apart, and every text about it without the password."""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from attrs import field, frozen

from memory_engine.errors import InvalidArgument
from memory_engine.errors.base import shown_place

SCHEMES = ("postgresql://", "postgres://")
CONNECTIONS = 8
"""Connections that a store opens at most, unless its URL says otherwise."""
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_YES_OR_NO = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}


@frozen
class Address:
    """A store's place: `shown` is for people, `dsn` is for the driver and has the password.

    The tables are in `schema`. Without `prepared`, statements are not kept between two calls, and each call is one
    transaction: so a pooler may give every transaction another connection. At most `connections` are opened. `wait_s`
    is how long a call waits for a server that is away, if the URL says so.
    """

    shown: str
    dsn: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    schema: str = "memory_engine"
    prepared: bool = True
    connections: int = CONNECTIONS
    wait_s: float | None = None

    def redacted(self, text: str) -> str:
        """A text of the driver's or the server's without the password."""
        text = shown_place(text)
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


def parse(url: str, *, schema: str | None = None) -> Address:
    """Take a URL apart: `postgresql://user:password@host:port/database?schema=…&prepared=no&connections=8`.

    Other options go to the driver (`sslmode`, `target_session_attrs` and so on). Raises `InvalidArgument`, which never
    shows a password.
    """
    safe = shown_place(url)
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise InvalidArgument(
            "the URL of a store", safe, "it cannot be read; write % and / in it as %25, %2F"
        ) from None
    ours = {name: value for name, value in given if name in ("schema", "prepared", "connections", "wait")}
    theirs = [(name, value) for name, value in given if name not in ours]
    password = re.search(r"^[^:]*:(.*)$", parts.netloc.rpartition("@")[0], re.DOTALL)
    named = [value for name, value in theirs if name == "password"]
    raw = [*([password[1]] if password else []), *named]
    secrets = {form for one in raw if one for form in (one, unquote(one), quote(one, safe=""))}
    _check_port(parts.netloc.rpartition("@")[2], safe)
    name = schema if schema is not None else ours.get("schema", "memory_engine")
    if not _SCHEMA.fullmatch(name):
        raise InvalidArgument("schema", name, "give letters, digits and _, up to 63 of them, not a digit first")
    return Address(
        shown=_safe_url(url, theirs, name),
        dsn=urlunsplit(parts._replace(query=urlencode(theirs))),
        secrets=tuple(sorted(secrets)),
        schema=name,
        prepared=_yes_or_no(ours, safe),
        connections=_count(ours, safe),
        wait_s=_seconds(ours, safe),
    )


def _safe_url(url: str, options: Iterable[tuple[str, str]], schema: str) -> str:
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    hosts = [(name, value) for name, value in options if name in ("host", "port", "dbname", "user")]
    query = urlencode([*hosts, ("schema", schema)], safe="/")
    return f"postgresql://{login.partition(':')[0]}{at}{host}{parts.path}?{query}"


def _check_port(hosts: str, safe: str) -> None:
    """The driver's own error would show the text in the port's place: the end of a password with a slash in it."""
    for host in hosts.split(","):
        port = re.search(r":([^:\]]*)$", host)
        if port and port[1] and not port[1].isdecimal():
            why = "its port is not a number; write @, / and : of a password as %40, %2F and %3A"
            raise InvalidArgument("the URL of a store", re.sub(r"//.*", "//***", safe), why)


def _yes_or_no(options: Mapping[str, str], safe: str) -> bool:
    asked = options.get("prepared", "yes").lower()
    if asked not in _YES_OR_NO:
        raise InvalidArgument("prepared", safe, "give yes or no")
    return _YES_OR_NO[asked]


def _seconds(options: Mapping[str, str], safe: str) -> float | None:
    given = options.get("wait")
    if given is None:
        return None
    if not re.fullmatch(r"\d{1,4}(\.\d{1,3})?", given):
        raise InvalidArgument("wait", safe, "give seconds, such as wait=0.5")
    return float(given)


def _count(options: Mapping[str, str], safe: str) -> int:
    asked = options.get("connections", str(CONNECTIONS))
    if not asked.isdecimal() or not 2 <= int(asked) <= 1_000:
        raise InvalidArgument("connections", safe, "give a number from 2 to 1000")
    return int(asked)
