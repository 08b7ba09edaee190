"""The MCP server over streamable HTTP: for this machine only, or for holders of the token."""

import hmac
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from memory_engine.engine import Engine
from memory_engine.inspector.server import CannotServe, answering, is_loopback, listening
from memory_engine.integrations.mcp import Served, create_server

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

WHAT = "the MCP server"
PATH = "/mcp"
TOKEN_CHARS_MIN = 16
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@asynccontextmanager
async def serving(  # noqa: PLR0913 - where, and who may come in, by keyword
    engine: Engine,
    served: Served,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str = "",
    hosts: Sequence[str] = (),
) -> AsyncIterator[str]:
    """Serve while the block runs; gives the address (`http://…/mcp`). `port` 0 takes a free one.

    With a `token`, requests carry it (`Authorization: Bearer …`); beyond this machine nothing is served without one.
    Requests must name this host in `Host`, and pages of other sites (`Origin`) are refused, so that no page in a
    browser gets here under another name (DNS rebinding); `hosts` are further names (`memory.example.com`).
    Raises `CannotServe`, `MissingExtra`.
    """
    _check_serving(host, port, token)
    server = await create_server(engine, served)
    with listening(WHAT, host, port) as listener:
        port = listener.getsockname()[1]
        named = f"[{host}]" if ":" in host else host
        from mcp.server.transport_security import TransportSecuritySettings

        names = [f"{name}:{port}" for name in (named, *_LOOPBACK)] + list(hosts) + [f"{name}:*" for name in hosts]
        origins = [f"{scheme}://{name}" for scheme in ("http", "https") for name in names]
        app: ASGIApp = server.streamable_http_app(
            streamable_http_path=PATH,
            host=host,
            transport_security=TransportSecuritySettings(allowed_hosts=names, allowed_origins=origins),
        )
        async with answering(WHAT, _TokenCheck(app, token) if token else app, listener, lifespan=True):
            yield f"http://{named}:{port}{PATH}"


class _TokenCheck:
    """Lets requests with the token through."""

    def __init__(self, app: "ASGIApp", token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request."""
        if scope["type"] == "http":
            given = [value for name, value in scope["headers"] if name == b"authorization"]
            if len(given) != 1 or not hmac.compare_digest(given[0], self._wanted):
                from starlette.responses import JSONResponse

                body = {"error": "unauthorized", "error_description": "send `Authorization: Bearer TOKEN`"}
                response = JSONResponse(body, 401, {"WWW-Authenticate": "Bearer"})
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _check_serving(host: str, port: int, token: str) -> None:
    if token and (len(token) < TOKEN_CHARS_MIN or not token.isascii() or not token.isprintable()):
        raise CannotServe(WHAT, host, port, f"a token has at least {TOKEN_CHARS_MIN} printable ASCII characters")
    if not is_loopback(WHAT, host, port) and not token:
        why = "others could reach it: give a token (MEMORY_ENGINE_MCP_TOKEN), or serve this machine only (127.0.0.1)"
        raise CannotServe(WHAT, host, port, why)
