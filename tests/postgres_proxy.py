"""A process between an engine and the tests' server that can be stopped: then nobody answers, and nothing is cut off.

`python -m tests.postgres_proxy SOCKET HOST PORT` listens on a socket and passes on what comes, both ways.
"""

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.postgres_server import new_store, server_place

_ROOT = Path(__file__).resolve().parents[1]
_CHUNK = 65_536


class Proxy:
    """The process. `new_url` names a store behind it."""

    def __init__(self, folder: Path) -> None:
        place = server_place()
        self._url = f"postgresql://{place['user']}@/{place['dbname']}?host={folder}"
        words = [sys.executable, "-m", "tests.postgres_proxy", f"{folder}/.s.PGSQL.5432", place["host"], place["port"]]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=_ROOT)
        assert self._process.stdout is not None
        assert self._process.stdout.readline()

    def new_url(self, **options: str) -> str:
        """The URL of a store that nobody has used."""
        return new_store(self._url, **options)

    def stop(self) -> None:
        """Pass nothing on; the system's side of each connection stays as it is."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Pass on what has come meanwhile, and what comes."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def proxied() -> Iterator[Proxy]:
    """A proxy, gone at the end. Skips where there is no server."""
    folder = Path(tempfile.mkdtemp(prefix="me-proxy-"))
    proxy = None
    try:
        proxy = Proxy(folder)
        yield proxy
    finally:
        if proxy is not None:
            proxy.end()
        shutil.rmtree(folder, ignore_errors=True)


async def _serve(listened: str, host: str, port: str) -> None:
    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = (
            asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
            if host.startswith("/")
            else asyncio.open_connection(host, int(port))
        )
        from_server, to_server = await there
        await asyncio.gather(passed(reader, to_server), passed(from_server, writer))

    server = await asyncio.start_unix_server(client, listened)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
