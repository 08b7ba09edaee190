"""Connections to the inspector: a limited number, and none is kept open by half a request.

uvicorn waits for the rest of a request without a limit; a program that opens hundreds of connections and
sends a byte now and then would block everybody else.
"""

import asyncio

REQUEST_S = 10.0
"""Seconds from the connection, or the first byte, within which a request must be complete."""
CONNECTIONS_MAX = 64
"""The most connections at once (a browser's page opens six); others are closed."""


def bounded_protocol() -> type[asyncio.Protocol]:
    """uvicorn's protocol, which closes a connection whose request does not arrive."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class BoundedProtocol(H11Protocol):
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > CONNECTIONS_MAX:
                transport.abort()
            else:
                self._late = self.loop.call_later(REQUEST_S, transport.abort)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
                self._in_time()
            elif self._late is None:  # it runs from the first byte on, whatever comes later
                self._late = self.loop.call_later(REQUEST_S, self.transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            self._in_time()
            super().connection_lost(exc)

        def _in_time(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return BoundedProtocol
