"""The MCP server over streamable HTTP: for this machine alone, or for whoever has the token."""

import asyncio
import hmac
import ipaddress
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from memory_engine.engine import Engine
from memory_engine.errors import InvalidInput, MissingExtra
from memory_engine.errors.base import facts
from memory_engine.integrations.mcp import Served, create_server

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn import Server as HttpServer

PATH = "/mcp"
TOKEN_CHARS_MIN = 16
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@facts
class CannotServeMcp(InvalidInput):
    """The MCP server cannot be served at this address."""

    host: str
    port: int
    why: str

    def __str__(self) -> str:
        return f"the MCP server cannot be served at {self.host}, port {self.port}: {self.why}"


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
    """Serve while the block runs, and give the address (`http://…/mcp`). `port` 0 takes a free one.

    With a `token`, requests carry it (`Authorization: Bearer …`); beyond this machine nothing is served without one.
    Requests must name this host in `Host`, and pages of other sites (`Origin`) are refused, so that no page in a
    browser gets here by a name of its own (DNS rebinding); `hosts` are further names (`memory.example.com`).
    Raises `CannotServeMcp`, `MissingExtra`.
    """
    server = await create_server(engine, served)
    _check(host, port, token)
    with _listening(host, port) as listener:
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
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        http = _http_server(_Guard(app, token) if token else app, started)
        task = asyncio.create_task(http.serve(sockets=[listener]))
        try:
            await asyncio.wait([task, started], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            yield f"http://{named}:{port}{PATH}"
        finally:
            http.should_exit = True
            await asyncio.wait([task])
        task.result()


class _Guard:
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


def _check(host: str, port: int, token: str) -> None:
    if token and (len(token) < TOKEN_CHARS_MIN or not token.isascii() or not token.isprintable()):
        raise CannotServeMcp(host, port, f"a token is {TOKEN_CHARS_MIN} printable ASCII characters or more")
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise CannotServeMcp(host, port, "that is not an address; 127.0.0.1 and 0.0.0.0 are") from None
    if not address.is_loopback and not token:
        why = "others could reach it: give a token (MEMORY_ENGINE_MCP_TOKEN), or serve this machine alone (127.0.0.1)"
        raise CannotServeMcp(host, port, why)


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens. Raises `CannotServeMcp` where the port is taken."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if sys.platform != "win32":  # there it would let two programs listen at one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen()
        except (OSError, OverflowError) as error:
            raise CannotServeMcp(host, port, f"{error}; port 0 takes a free one") from None
        yield listener
    finally:
        listener.close()


def _http_server(app: "ASGIApp", started: "asyncio.Future[None]") -> "HttpServer":
    """A server that leaves signals to the program that runs the loop, and prints nothing."""
    try:
        import uvicorn
    except ImportError:
        raise MissingExtra("the MCP server over HTTP", "mcp") from None

    class Quiet(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started.set_result(None)

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    return Quiet(config)
