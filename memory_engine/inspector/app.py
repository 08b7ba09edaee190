"""The inspector as an ASGI application: its routes, its event stream, and the page's own files.

Every request passes the guard (see `guard`); data also needs the token. The page's own files are those
of the package's folder `page`, each by its bare name.
"""

import asyncio
import hmac
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl

from attrs import frozen

from memory_engine.core.cancellation import finished
from memory_engine.engine import Engine
from memory_engine.errors import MissingExtra
from memory_engine.inspector.acts import ACTS, BODY_BYTES_MAX, acted
from memory_engine.inspector.answers import (
    TOKEN,
    Inspection,
    Query,
    Route,
    Writer,
    answered,
    failed,
    failure,
    http_response,
)
from memory_engine.inspector.guard import LOOPBACK, Guard
from memory_engine.inspector.live import TAKES, live, message
from memory_engine.inspector.routes_glance import GLANCE_ROUTES
from memory_engine.inspector.routes_log import LOG_ROUTES
from memory_engine.inspector.routes_replay import REPLAY_ROUTES
from memory_engine.inspector.routes_state import STATE_ROUTES
from memory_engine.inspector.routes_store import STORE_ROUTES
from memory_engine.inspector.routes_talk import TALK_ROUTES
from memory_engine.inspector.routes_time import TIME_ROUTES
from memory_engine.inspector.routes_what_if import WHAT_IF_ROUTES

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"


_OWN_FILE = re.compile(r'(?<=(?:src|ref)=")(?=[a-z_]+\.(?:js|css)")')
"""Where the page names one of its files."""
FOREVER = "public, max-age=31536000, immutable"


class PageFiles:
    """The page's own files, read once. Under the `digest` of all of them, `DIGEST/app.js`, a browser may keep a file.

    The page names every module, so that a browser asks for all of them at once, not for one after the other as it
    discovers their imports.
    """

    def __init__(self) -> None:
        folder = files("memory_engine.inspector").joinpath("page")
        found = sorted((file.name, file.read_bytes()) for file in folder.iterdir() if _media_type_of(file.name))
        whole = b"\0".join(part for name, body in found for part in (name.encode(), body))
        self.digest = sha256(whole).hexdigest()[:16]
        self._files = dict(found)
        modules = [name for name in self._files if name.endswith(".js") and name not in ("app.js", "theme.js")]
        page = self._files[INDEX].decode()
        preloads = "".join(f'<link rel="modulepreload" href="{name}">\n' for name in modules)
        page = page.replace("</head>", f"{preloads}</head>", 1)
        self._files[INDEX] = _OWN_FILE.sub(f"{self.digest}/", page).encode()

    def find(self, path: str) -> tuple[bytes, str, Mapping[str, str]] | None:
        """A file's bytes, media type and headers by its path (empty: the page itself), `None` without one.

        The path is compared with existing names, never used as one.
        """
        name = path.removeprefix(f"{self.digest}/") or INDEX
        body = self._files.get(name)
        if body is None:
            return None
        return body, _media_type_of(name), {"Cache-Control": FOREVER} if name not in (path, INDEX) else {}


def _media_type_of(name: str) -> str:
    return KINDS.get(name[name.rfind(".") :], "")


T = TypeVar("T")

ROUTES: tuple[Route, ...] = (
    *STORE_ROUTES,
    *GLANCE_ROUTES,
    *LOG_ROUTES,
    *STATE_ROUTES,
    *TALK_ROUTES,
    *TIME_ROUTES,
    *REPLAY_ROUTES,
    *WHAT_IF_ROUTES,
)
API = "/api/"
_WRONG_TOKEN = failure("WrongToken", "open the complete address that was printed; it ends in the token")


def create_app(  # noqa: PLR0913 - who may ask, and what for, by keyword
    engine: Engine,
    *,
    token: str,
    port: int | None = None,
    hosts: tuple[str, ...] = LOOPBACK,
    path: str = "",
    stopping: asyncio.Event | None = None,
    writer: Writer | None = None,
) -> "Starlette":
    """The inspector of an engine, to be served on a loopback address: see `memory_engine.inspector.server`.

    It only reads; an engine without `EngineConfig(read_only=True)` may write caches. With
    a `writer`, holders of the token may also undo compactions and keep what-ifs: it opens the store for each act.
    Requests need the `token`, and one of `hosts` as their Host, at `port` (default: any). `path` is the name that
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
    pages = _Pages(Inspection(engine, path, writer), token.encode(), stopping or asyncio.Event(), PageFiles())
    paths = [Path(f"{API}{route.name}", pages.data(route)) for route in ROUTES]
    acts = [Path(f"{API}{name}", pages.act(name), methods=["POST"]) for name in (ACTS if writer is not None else ())]
    app = Starlette(
        routes=[*paths, *acts, Path(f"{API}live", pages.news), Path("/{name:path}", pages.file)],
        middleware=[Middleware(Guard, port=port, hosts=hosts, acts=[act.path for act in acts])],
    )
    app.router.redirect_slashes = False
    return app


@frozen(eq=False)
class _Pages:
    """The endpoints. Work on an answer stops when its client disconnects."""

    inspection: Inspection
    token: bytes
    stopping: asyncio.Event
    files: PageFiles

    def data(self, route: Route) -> Callable[["Request"], Awaitable["Response"]]:
        """The endpoint of a route."""

        async def endpoint(request: "Request") -> "Response":
            query: bytes = request.scope["query_string"]
            if not self._knows_token(request):
                return http_response(403, _WRONG_TOKEN)
            found = await self.while_wanted(request.receive, answered(route, self.inspection, query))
            return http_response(*(found or (503, failure("Stopping", "the inspector is stopping"))))

        return endpoint

    def act(self, name: str) -> Callable[["Request"], Awaitable["Response"]]:
        """The endpoint of an act, which is finished even if its client disconnects."""

        async def endpoint(request: "Request") -> "Response":
            if not self._knows_token(request) or "x-token" not in request.headers:
                return http_response(403, _WRONG_TOKEN)
            body = b""
            async for piece in request.stream():
                body += piece
                if len(body) > BODY_BYTES_MAX:
                    return http_response(413, failure("TooLarge", f"a request has at most {BODY_BYTES_MAX} bytes"))
            return http_response(*await finished(asyncio.create_task(acted(name, self.inspection, body))))

        return endpoint

    async def news(self, request: "Request") -> "Response":
        """The endpoint of the event stream."""
        query: bytes = request.scope["query_string"]
        if not self._knows_token(request):
            return http_response(403, _WRONG_TOKEN)
        try:
            return _streaming(self, await live(self.inspection, Query.parse(query, TAKES)))
        except Exception as error:  # the boundary to the page, which gets any error
            return http_response(*failed("live", error))

    async def file(self, request: "Request") -> "Response":
        """The endpoint of the page's own files, and of unknown paths."""
        name: str = request.path_params["name"]
        found = self.files.find(name)
        if found is None:
            return http_response(404, failure("NotFound", f"there is no {name[:200]!r} here"))
        return http_response(200, *found)

    def _knows_token(self, request: "Request") -> bool:
        """Whether the token is given: in its header, in the address, or the same in both."""
        query: bytes = request.scope["query_string"]
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        shown = [value.encode() for name, value in pairs if name == TOKEN]
        shown += [value.encode("latin-1") for value in request.headers.getlist("x-token")]
        return bool(shown) and all(hmac.compare_digest(value, self.token) for value in shown)

    async def while_wanted(self, receive: "Receive", work: Coroutine[object, object, T]) -> T | None:
        """The result of the work; `None` if the client disconnects or the server stops: then the work is cancelled."""
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


def _streaming(pages: _Pages, news: AsyncGenerator[bytes, None]) -> "Response":
    """A response that lasts while there may be news and the client is connected."""
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
            last = message("end", {"why": "the inspector is stopping"}) if pages.stopping.is_set() else b""
            await send({"type": "http.response.body", "body": last})

    return Streaming()


async def _tell(news: AsyncGenerator[bytes, None], send: "Send") -> None:
    async for said in news:
        await send({"type": "http.response.body", "body": said, "more_body": True})
