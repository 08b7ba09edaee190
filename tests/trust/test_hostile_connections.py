"""Programs that would keep everybody else from the inspector: by half a request, or by very many connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest

import memory_engine
from memory_engine.inspector import connections, serving
from tests.patience import PATIENCE_S

HALF = {
    "nothing": b"",
    "half a line": b"GET / HT",
    "half of the headers": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A:",
    "half a body": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nhalf",
    "half a body of a question": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nhalf",
    "half a chunk": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf",
}


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """The port of an inspector."""
    async with memory_engine.open(":memory:") as engine, serving(engine) as address:
        found = urlsplit(address).port
        assert found is not None
        yield found


async def answered(port: int) -> bytes:
    """The first line of the answer to a whole request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
    line = await reader.readline()
    writer.close()
    return line


async def ended(reader: asyncio.StreamReader) -> bool:
    """Wait for the end of a connection."""
    try:
        while await reader.read(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("what", HALF)
async def test_half_a_request_is_not_waited_for(port: int, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is cut, however many bytes come one by one; a whole request is answered meanwhile."""
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HALF[what])

    async def drip() -> None:
        while what != "nothing" and not writer.is_closing():
            writer.write(b"a")
            await asyncio.sleep(0.01)

    dripping = asyncio.create_task(drip())
    assert (await answered(port)).startswith(b"HTTP/1.1 ")
    assert await asyncio.wait_for(ended(reader), PATIENCE_S)
    dripping.cancel()
    writer.close()


async def test_a_connection_that_goes_on_asking_is_kept(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is one request's, not the connection's."""
    monkeypatch.setattr(connections, "REQUEST_S", 30.0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(3):
        writer.write(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
        await reader.readexactly(length)
    writer.close()


async def test_so_many_connections_are_open_at_once(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is closed as it comes; when some have gone, others are served."""
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 8)
    async with AsyncExitStack() as held:
        for _ in range(8):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            held.callback(writer.close)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(ended(reader), PATIENCE_S)
        writer.close()
    tries = [await _tried(port) for _ in range(200)]
    assert tries[-1].startswith(b"HTTP/1.1 ")


async def _tried(port: int) -> bytes:
    try:
        return await answered(port)
    except ConnectionError:
        return b""
