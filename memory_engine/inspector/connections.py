"""Connections to the inspector: so many at once, and none is held open by half a request.

uvicorn waits for the rest of a request as long as its sender likes; a program that opens hundreds of connections and
sends a byte now and then would keep everybody else out.
"""

import asyncio

REQUEST_S = 10.0
"""A request must be there, whole, so many seconds after its connection or its first byte."""
CONNECTIONS_MAX = 64
"""A page in a browser opens six; more than so many are closed as they come."""


def bounded_protocol() -> type[asyncio.Protocol]:
    """uvicorn's protocol, which cuts a connection where its request does not come."""
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
