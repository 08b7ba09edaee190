"""Conditions that every request must satisfy before it reaches a route, and the headers of every answer.

A page of another site in the same browser, or another user of the machine, could reach the port. So names of other
hosts are refused (DNS rebinding), only GET and HEAD are answered (and POST to an act, where acts are allowed), and the
browser must let the page load nothing from other hosts and show it in no frame.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from memory_engine.inspector.answers import failure, http_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost")
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
"""The headers of every answer, but for those that it brings itself."""
_RAW_HEADERS = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in HEADERS.items()]


class Guard:
    """Accepts a request that names this machine and only reads, or is an act; adds headers to every answer."""

    def __init__(self, app: "ASGIApp", port: int | None, hosts: tuple[str, ...], acts: Sequence[str] = ()) -> None:
        self._app = app
        self._port = port
        self._hosts = hosts
        self._acts = tuple(acts)

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
        response = http_response(status, failure(kind, why))
        if status == 405:
            response.headers["allow"] = "GET, HEAD"
        await response(scope, receive, _with_headers(send))

    def _refused(self, scope: "Scope") -> tuple[int, str, str] | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        named = [value for name, value in headers if name == b"host"]
        if len(named) != 1 or not self._is_ours(named[0].decode("latin-1")):
            why = f"this is the inspector of {' and '.join(self._hosts)}; other host names are refused"
            return 421, "WrongHost", why
        is_act = scope["method"] == "POST" and scope["path"].endswith(self._acts)
        if scope["method"] not in ("GET", "HEAD") and not is_act:
            return 405, "MethodNotAllowed", "the inspector only reads: it accepts GET and HEAD"
        return None

    def _is_ours(self, host: str) -> bool:
        name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "80")
        return name.lower() in self._hosts and (self._port is None or port == str(self._port))


def _with_headers(send: "Send") -> "Send":
    async def sending(said: "Message") -> None:
        if said["type"] == "http.response.start":
            own = list(said.get("headers", []))
            named = {name for name, _ in own}
            said["headers"] = own + [header for header in _RAW_HEADERS if header[0] not in named]
        await send(said)

    return sending
