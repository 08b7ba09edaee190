"""Serving the inspector on a loopback address, in its engine's event loop."""

import asyncio
import ipaddress
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

from memory_engine.engine import Engine
from memory_engine.errors import InvalidInput, MissingExtra
from memory_engine.errors.base import facts
from memory_engine.inspector.answers import Writer
from memory_engine.inspector.app import create_app
from memory_engine.inspector.connections import bounded_protocol
from memory_engine.inspector.guard import LOOPBACK

if TYPE_CHECKING:
    from starlette.types import ASGIApp
    from uvicorn import Server

HOST = "127.0.0.1"
WHAT = "the inspector"
LINE_BYTES_MAX = 256 * 1024
"""The most bytes of a request's address and headers: a thread id of 4,096 bytes takes 12 kB in an address."""


@facts
class CannotServe(InvalidInput):
    """`what` (the inspector, the MCP server) cannot be served at this address."""

    what: str
    host: str
    port: int
    why: str

    def __str__(self) -> str:
        return f"{self.what} cannot be served at {self.host}, port {self.port}: {self.why}"


@asynccontextmanager
async def serving(  # noqa: PLR0913 - where, to whom, and what for, by keyword
    engine: Engine,
    *,
    port: int = 0,
    host: str = HOST,
    token: str = "",
    path: str = "",
    writer: Writer | None = None,
) -> AsyncIterator[str]:
    """Serve the inspector of an engine while the block runs; gives its address, which ends in the token.

    `port` 0 takes a free one; without a `token` one is generated. `path` is the store's name on the page. In a
    program of your own, open the engine with `EngineConfig(read_only=True)` if looking must write nothing at all.
    With a `writer`, which opens the store to write to it, the page may undo compactions and keep what-ifs. At the
    end of the block, open requests stay unanswered and the port is free. Raises `CannotServe`, `MissingExtra`.

        async with memory_engine.open("agent.db") as engine, serving(engine) as address:
            print(address)
            ...
    """
    token = token or secrets.token_urlsafe()
    if not is_loopback(WHAT, host, port):
        raise CannotServe(WHAT, host, port, "it shows the whole memory, so it serves this machine only (127.0.0.1)")
    with listening(WHAT, host, port) as listener:
        port = listener.getsockname()[1]
        named = f"[{host}]" if ":" in host else host
        stopping = asyncio.Event()
        hosts = tuple(dict.fromkeys((named, *LOOPBACK)))
        app = create_app(engine, token=token, port=port, hosts=hosts, path=path, stopping=stopping, writer=writer)
        async with answering(WHAT, app, listener, stopping.set):
            yield f"http://{named}:{port}/?token={quote(token, safe='')}"


@asynccontextmanager
async def answering(
    what: str,
    app: "ASGIApp",
    listener: socket.socket,
    stopping: Callable[[], None] = lambda: None,
    *,
    lifespan: bool = False,
) -> AsyncIterator[None]:
    """Answer a socket's requests with an application while the block runs; `stopping` is called at its end.

    Signals are left to the program that runs the loop. With `lifespan`, the application gets start and end events.
    Raises `MissingExtra`.
    """
    started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    server = _server(what, app, started, lifespan=lifespan)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await asyncio.wait([task, started], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield
    finally:
        stopping()
        server.should_exit = True
        await asyncio.wait([task])
    task.result()


def is_loopback(what: str, host: str, port: int) -> bool:
    """Whether an address is this machine's own. Raises `CannotServe` if it is not an address."""
    try:
        return ipaddress.ip_address(HOST if host == "localhost" else host).is_loopback
    except ValueError:
        raise CannotServe(what, host, port, "that is not an address; 127.0.0.1 and ::1 are") from None


@contextmanager
def listening(what: str, host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket. Raises `CannotServe` if the port is taken."""
    address = HOST if host == "localhost" else host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # asyncio sends at once only on sockets that are said to be TCP's: else a body waits 40 ms for the headers' receipt
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":  # there it would let two programs listen at one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
            listener.listen()
        except (OSError, OverflowError) as error:
            raise CannotServe(what, host, port, f"{error}; port 0 takes a free one") from None
        yield listener
    finally:
        listener.close()


def _server(what: str, app: "ASGIApp", started: "asyncio.Future[None]", *, lifespan: bool) -> "Server":
    """A server that leaves signals to the program that runs the loop, logs only that it started, and stops at once."""
    try:
        import uvicorn
    except ImportError:
        raise MissingExtra(what, "mcp" if lifespan else "inspect") from None

    class Quiet(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started.set_result(None)

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        http=bounded_protocol(),
        ws="none",
        lifespan="on" if lifespan else "off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=LINE_BYTES_MAX,
    )
    return Quiet(config)
