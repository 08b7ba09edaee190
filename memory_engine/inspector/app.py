"""The inspector as an ASGI application: its routes, and what every request must show before it gets to them.

A page of another site in the same browser, or another user of the machine, could reach the port. So every request
for data needs the token, names of other hosts are refused (DNS rebinding), only GET and HEAD are
answered, and the browser is told to let the page load nothing from elsewhere and show it inside no other.

Server-sent events tell news: a log's head, or the store's totals. The store is polled, since other processes write to
it; slow polls come less often. The page's own files are those of the package's folder `page`, each by its bare name.
"""

import asyncio
import hmac
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from importlib.resources import files
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl

from attrs import frozen

from memory_engine.engine import Engine
from memory_engine.errors import MemoryEngineError, MissingExtra, ThreadNotFound
from memory_engine.inspector import routes_log, routes_state
from memory_engine.inspector.answers import TOKEN, Inspection, Query, Route, answered, encode, failed, failure
from memory_engine.store.protocol import ThreadFilter

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


POLL_S = 0.5
SHARE = 20
"""A poll waits at least this many times as long as the last one took."""
HEARTBEAT_S = 15.0
"""Seconds without news after which a comment keeps the connection alive."""
TAKES = frozenset({"thread"})

News = dict[str, object]


async def live(inspection: Inspection, query: Query) -> AsyncGenerator[bytes, None]:
    """News of a thread, or of the store where none is named, from now on. Ends when the thread is deleted.

    Raises `ThreadNotFound` before the first news.
    """
    thread_id = query.text("thread", "")
    if thread_id:
        return _told("head", lambda: _head(inspection, thread_id), await _head(inspection, thread_id))
    return _told("threads", lambda: _threads(inspection), await _threads(inspection))


async def _head(inspection: Inspection, thread_id: str) -> News:
    head = await inspection.engine.store.head(thread_id)
    return {"head": head.seq, "status": head.status}


async def _threads(inspection: Inspection) -> News:
    found = await inspection.engine.store.threads(ThreadFilter())
    return {"total": len(found), "events": sum(head.seq for _, head in found)}


async def _told(kind: str, look: Callable[[], Awaitable[News]], first: News) -> AsyncGenerator[bytes, None]:
    known, said_at, took = first, time.monotonic(), 0.0
    yield message(kind, first)
    while True:
        await asyncio.sleep(max(POLL_S, SHARE * took))
        began = time.monotonic()
        try:
            found = await look()
        except ThreadNotFound as error:
            yield message("end", {"why": str(error)})
            return
        except MemoryEngineError:  # busy, or a failing disk: the next poll may succeed
            found = known
        took = time.monotonic() - began
        if found != known:
            yield message(kind, found)
        elif time.monotonic() - said_at >= HEARTBEAT_S:
            yield b": alive\n\n"
        else:
            continue
        known, said_at = found, time.monotonic()


def message(kind: str, news: News) -> bytes:
    """One event of the stream. JSON holds no line break."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode("ascii"), encode(news))


KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"


def page_file(name: str) -> tuple[bytes, str] | None:
    """A file's bytes and media type by its name (empty: the page itself), `None` where there is no such file.

    The name is compared with existing names, and never becomes part of a path.
    """
    name = name or INDEX
    for file in files("memory_engine.inspector").joinpath("page").iterdir():
        kind = KINDS.get(name[name.rfind(".") :]) if file.name == name else None
        if kind is not None and file.is_file():
            return file.read_bytes(), kind
    return None


T = TypeVar("T")

ROUTES: tuple[Route, ...] = (
    *routes_state.STORE_ROUTES,
    *routes_log.LOG_ROUTES,
    *routes_state.STATE_ROUTES,
    *routes_log.REPLAY_ROUTES,
)
API = "/api/"
LOOPBACK = ("127.0.0.1", "localhost")
JSON = "application/json"
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
"""The headers of every answer."""
_WRONG_TOKEN = failure("WrongToken", "open the whole address that was printed; it ends in the token")
_RAW_HEADERS = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in HEADERS.items()]


def create_app(  # noqa: PLR0913 - who may ask, and what for, by keyword
    engine: Engine,
    *,
    token: str,
    port: int | None = None,
    hosts: tuple[str, ...] = LOOPBACK,
    path: str = "",
    stopping: asyncio.Event | None = None,
) -> "Starlette":
    """The inspector of an engine, to be served on a loopback address: see `memory_engine.inspector.server`.

    It reads, and writes nothing if the engine was opened with `EngineConfig(read_only=True)`; else caches at most.
    Requests need the `token`, and a Host that is one of `hosts`, at `port` (default: at any). `path` is the name that
    the page shows for the store; once `stopping` is set, running answers end. Raises `MissingExtra` without the extra
    `inspect`, `ValueError` for an empty token.
    """
    try:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.routing import Route as Path
    except ImportError:
        raise MissingExtra("the inspector", "inspect") from None
    if not token:
        raise ValueError("the inspector needs a token: secrets.token_urlsafe() makes one")
    pages = _Pages(Inspection(engine, path), token.encode(), stopping or asyncio.Event())
    paths = [Path(f"{API}{route.name}", pages.data(route)) for route in ROUTES]
    app = Starlette(
        routes=[*paths, Path(f"{API}live", pages.news), Path("/{name:path}", pages.file)],
        middleware=[Middleware(Guard, port=port, hosts=hosts)],
    )
    app.router.redirect_slashes = False
    return app


@frozen(eq=False)
class _Pages:
    """The endpoints. An answer is worked out only as long as its client waits for it."""

    inspection: Inspection
    token: bytes
    stopping: asyncio.Event

    def data(self, route: Route) -> Callable[["Request"], Awaitable["Response"]]:
        """The endpoint of a route."""

        async def endpoint(request: "Request") -> "Response":
            query: bytes = request.scope["query_string"]
            if not self._knows_token(request):
                return _response(403, _WRONG_TOKEN)
            found = await self.while_wanted(request.receive, answered(route, self.inspection, query))
            return _response(*(found or (503, failure("Stopping", "the inspector is being stopped"))))

        return endpoint

    async def news(self, request: "Request") -> "Response":
        """The endpoint of the news."""
        query: bytes = request.scope["query_string"]
        if not self._knows_token(request):
            return _response(403, _WRONG_TOKEN)
        try:
            return _streaming(self, await live(self.inspection, Query.parse(query, TAKES)))
        except Exception as error:  # the boundary to the page, which is told of any error
            return _response(*failed("live", error))

    async def file(self, request: "Request") -> "Response":
        """The endpoint of the page's own files, and of unknown paths."""
        name: str = request.path_params["name"]
        found = await asyncio.to_thread(page_file, name)
        if found is None:
            return _response(404, failure("NotFound", f"there is no {name[:200]!r} here"))
        return _response(200, *found)

    def _knows_token(self, request: "Request") -> bool:
        """Whether the token is shown: in its header, in the address, or the same in both."""
        query: bytes = request.scope["query_string"]
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        shown = [value.encode() for name, value in pairs if name == TOKEN]
        shown += [value.encode("latin-1") for value in request.headers.getlist("x-token")]
        return bool(shown) and all(hmac.compare_digest(value, self.token) for value in shown)

    async def while_wanted(self, receive: "Receive", work: Coroutine[object, object, T]) -> T | None:
        """The result of the work; `None` if the client went, or the server stops: then the work is cancelled."""
        tasks = asyncio.create_task(work), asyncio.create_task(_gone(receive)), asyncio.create_task(self._stopped())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return tasks[0].result() if tasks[0].done() else None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _stopped(self) -> None:
        await self.stopping.wait()


async def _gone(receive: "Receive") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _response(status: int, body: bytes, kind: str = JSON) -> "Response":
    from starlette.responses import Response

    return Response(body, status, media_type=kind)


def _streaming(pages: _Pages, news: AsyncGenerator[bytes, None]) -> "Response":
    """A response that goes on as long as there may be news and the client listens."""
    from starlette.responses import Response

    class Streaming(Response):
        media_type = "text/event-stream"

        def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
            super().init_headers(headers)
            del self.headers["content-length"]

        async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with aclosing(news):
                if scope["method"] == "GET":
                    await pages.while_wanted(receive, _tell(news, send))
            last = message("end", {"why": "the inspector is being stopped"}) if pages.stopping.is_set() else b""
            await send({"type": "http.response.body", "body": last})

    return Streaming()


async def _tell(news: AsyncGenerator[bytes, None], send: "Send") -> None:
    async for said in news:
        await send({"type": "http.response.body", "body": said, "more_body": True})


class Guard:
    """Lets a request through that names this machine and only reads; adds the same headers to every answer."""

    def __init__(self, app: "ASGIApp", port: int | None, hosts: tuple[str, ...]) -> None:
        self._app = app
        self._port = port
        self._hosts = hosts

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        refused = self._refused(scope) if scope["type"] == "http" else None
        if refused is None:
            await self._app(scope, receive, _with_headers(send))
            return
        status, kind, why = refused
        response = _response(status, failure(kind, why))
        if status == 405:
            response.headers["allow"] = "GET, HEAD"
        await response(scope, receive, _with_headers(send))

    def _refused(self, scope: "Scope") -> tuple[int, str, str] | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        named = [value for name, value in headers if name == b"host"]
        if len(named) != 1 or not self._is_ours(named[0].decode("latin-1")):
            why = f"this is the inspector of {' and '.join(self._hosts)}; no other name is answered"
            return 421, "WrongHost", why
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "MethodNotAllowed", "the inspector only looks: GET and HEAD are all it takes"
        return None

    def _is_ours(self, host: str) -> bool:
        name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "80")
        return name.lower() in self._hosts and (self._port is None or port == str(self._port))


def _with_headers(send: "Send") -> "Send":
    async def sending(said: "Message") -> None:
        if said["type"] == "http.response.start":
            said["headers"] = [*said.get("headers", []), *_RAW_HEADERS]
        await send(said)

    return sending
