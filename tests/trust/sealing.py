"""What tests of encrypted stores share: keys, what stands in a folder, and an encrypted file's pages in clear."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import memory_engine
from memory_engine import EngineConfig, Thread, UserMessage

KEY = "correct horse battery staple"
RAW, OTHER = bytes(range(32)), bytes(range(1, 33))
"""Keys of which nothing has to be made, which takes some tenths of a second."""
PAGE, RESERVED = 4096, 80


def sealed() -> None:
    """Skip where SQLCipher's driver is not installed."""
    pytest.importorskip("sqlcipher3", reason="the extra `encrypted` is not installed")


def prints(folder: Path) -> Mapping[str, str]:
    """The digest of each file of a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def holding(folder: Path, *words: str) -> list[str]:
    """The files of a folder that hold one of these words."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and has(path.read_bytes(), *words)]


def has(data: bytes, *words: str) -> bool:
    """Whether some bytes hold one of these words."""
    return any(word.encode() in data for word in words)


async def filled(path: Path, key: memory_engine.KeySource | None, *texts: str) -> None:
    """A store of one thread `t` with these messages."""
    async with memory_engine.open(path, key=key) as engine:
        thread = await engine.open_thread("t")
        await thread.dispatch_all([UserMessage(content=text) for text in texts])


async def said(thread: Thread) -> list[str]:
    """What users said in a thread."""
    events = [recorded.event async for recorded in thread.events()]
    return [str(event.content) for event in events if isinstance(event, UserMessage)]


async def read(path: Path, key: memory_engine.KeySource | None) -> list[str]:
    """What was said in `t`, by an engine that only reads; the store verifies."""
    async with memory_engine.open(path, key=key, config=EngineConfig(read_only=True)) as engine:
        assert all(report.ok for report in await engine.verify())
        return await said(engine.thread("t"))


@contextmanager
def running(word: str, path: Path, *keys: bytes | None) -> "Iterator[subprocess.Popen[str]]":
    """A process that does this with a store (see `encrypted_child`), from when it has begun; killed in the end."""
    command = [sys.executable, "-m", "tests.processes.encrypted_child", word, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\t".join(f"x'{key.hex()}'" if key else "" for key in keys) + "\n")
            child.stdin.flush()
            assert child.stdout.readline()
            yield child
        finally:
            child.kill()


def in_clear(path: Path, key: bytes) -> bytes:
    """All pages of an encrypted file as they are under the cipher, free ones and gaps included."""
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers", reason="nothing here can decrypt a page")
    data, pages = path.read_bytes(), []
    for start in range(0, len(data), PAGE):
        page = data[start : start + PAGE]
        initial = page[PAGE - RESERVED : PAGE - RESERVED + 16]
        cipher = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.CBC(initial)).decryptor()
        pages.append(cipher.update(page[0 if start else 16 : PAGE - RESERVED]) + cipher.finalize())
    return b"".join(pages)
