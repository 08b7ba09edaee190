"""The inspector on a real port: in the test's own loop, or in a thread for browsers that are driven synchronously."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
from attrs import frozen

import memory_engine
from memory_engine import EngineConfig
from memory_engine.engine import Engine
from memory_engine.inspector import serving

Headers = Mapping[str, str]


@contextmanager
def served(path: str, *, write: bool = False) -> Iterator[str]:
    """Serve a database, read-only, from a thread with a loop of its own; gives the address with its token.

    With `write` the page may write what it is asked to.
    """
    started = threading.Event()
    addresses: list[str] = []
    failures: list[BaseException] = []
    loop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        async with (
            memory_engine.open(path, config=EngineConfig(read_only=True)) as engine,
            serving(engine, path=path, writer=partial(memory_engine.open, path) if write else None) as address,
        ):
            addresses.append(address)
            loop.append((asyncio.get_running_loop(), stopped := asyncio.Event()))
            started.set()
            await stopped.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # whatever it is, the test is told, which waits for the start
            failures.append(error)
            started.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    started.wait()
    try:
        if failures:
            raise failures[0]
        yield addresses[0]
    finally:
        for running, stopped in loop:
            running.call_soon_threadsafe(stopped.set)
        thread.join()


@frozen
class Answer:
    """What came back: the status, the headers with their names in lower case, and the body."""

    status: int
    headers: Headers
    body: bytes

    def data(self) -> object:
        """The JSON of the body."""
        return msgspec.json.decode(self.body)


@frozen
class Browser:
    """A plain HTTP client for one inspector, one connection for each request."""

    address: str

    @property
    def port(self) -> int:
        """The port that is served."""
        return urlsplit(self.address).port or 0

    @property
    def token(self) -> str:
        """The token that the address ends in."""
        return parse_qs(urlsplit(self.address).query)["token"][0]

    async def api(self, name: str, given: Mapping[str, object] | None = None) -> Answer:
        """Ask a route, with the token in its header."""
        asked = urlencode(dict(given or {}))
        return await self.ask(f"/api/{name}" + (f"?{asked}" if asked else ""), {"X-Token": self.token})

    async def act(self, name: str, given: Mapping[str, object]) -> Answer:
        """Ask for an act, with the token in its header."""
        return await self.ask(f"/api/{name}", {"X-Token": self.token}, "POST", msgspec.json.encode(given))

    async def ask(self, target: str, headers: Headers | None = None, method: str = "GET", body: bytes = b"") -> Answer:
        """One request, and the answer to its end."""
        sent = {"Host": f"127.0.0.1:{self.port}", "Connection": "close", **(headers or {})}
        if body:
            sent["Content-Length"] = str(len(body))
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
        async with self.connection() as (reader, writer):
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            return _parsed(await reader.read())

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection, closed at the end of the block."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**26)
        try:
            yield reader, writer
        finally:
            writer.close()


def _parsed(answer: bytes) -> Answer:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(": ") for line in lines)
    return Answer(int(first.split()[1]), {name.lower(): value for name, _, value in pairs}, body)


@asynccontextmanager
async def inspected(engine: Engine, path: str = "", *, write: bool = False) -> AsyncIterator[Browser]:
    """An engine's inspector, and a client that has its address. With `write` it may write to the file at the path."""
    async with serving(engine, path=path, writer=partial(memory_engine.open, path) if write else None) as address:
        yield Browser(address)
