"""A storage for what Strands Agents offload from their contexts, in the thread of a session.

    from memory_engine.integrations.strands import MemoryEngineStorage

    ContextOffloader(storage=MemoryEngineStorage("chat", engine))

Needs the extra `strands`.
"""

# pyright: reportMissingImports=false
# strands-agents is in the environment of its tests alone

import asyncio
import base64
import builtins
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

from memory_engine import sync
from memory_engine.engine import Engine
from memory_engine.errors import MissingExtra
from memory_engine.integrations.owned import OwnedThreads
from memory_engine.thread import handle_of
from memory_engine.views.items.view import Items

try:
    from strands.storage.storage import StorageSearchResult
except ImportError:
    raise MissingExtra("a storage of Strands Agents", "strands") from None

T = TypeVar("T")

SPACE = ("strands",)
"""The namespace of the items of a storage."""
_FOUND_MAX = 10
_KIND = re.compile(rb"[\w.+-]+/[\w.+-]+")
_HEAD = 2
"""Bytes in which a frame says how long the type of its content is."""


class MemoryEngineStorage:
    """A `Storage` in the thread of a session, which the first `write` makes: values go when the session is deleted.

    `engine` is one that `memory_engine.sync.open` opened. Texts are kept as texts, and found by `search` and in the
    thread; other bytes as base64. Methods raise `ThreadDiffers` for a session of another user or tenant.
    """

    def __init__(
        self, session_id: str, engine: sync.Engine, *, user_id: str = "", tenant_id: str = "", agent_id: str = ""
    ) -> None:
        self._session_id = session_id
        self._engine = engine
        self._owner = partial(
            OwnedThreads,
            user_id=user_id,
            tenant_id=tenant_id,
            agent_id=agent_id,
            metadata={"strands": "session"},
        )

    async def write(self, key: str, data: bytes) -> None:
        """Store a value under a key, in place of the one that is there."""

        async def write(engine: Engine) -> None:
            thread = await self._owner(engine=engine).open(self._session_id)
            await Items(handle_of(thread)).put(SPACE, key, _storage_value(data), index=("text",))

        await self._call(write)

    async def read(self, key: str) -> bytes | None:
        """The value under a key, or `None`."""

        async def read(items: Items | None) -> bytes | None:
            found = None if items is None else await items.get(SPACE, key)
            return None if found is None else _data(found.value)

        return await self._within(read)

    async def delete(self, key: str) -> None:
        """Remove a value. The log keeps it."""

        async def delete(items: Items | None) -> None:
            if items is not None:
                await items.delete(SPACE, key)

        await self._within(delete)

    async def list(self, query: str = "") -> "builtins.list[str]":
        """The keys that begin with a text, in order."""

        async def keys(items: Items | None) -> builtins.list[str]:
            found = [] if items is None else await items.list(SPACE, limit=None)
            return sorted(item.key for item in found if item.key.startswith(query))

        return await self._within(keys)

    async def search(self, query: str) -> "builtins.list[StorageSearchResult]":
        """The values whose texts match a query best."""

        async def search(items: Items | None) -> builtins.list[StorageSearchResult]:
            found = [] if items is None else await items.search(query, SPACE, limit=_FOUND_MAX)
            return [StorageSearchResult(item.key, item.score or 0.0, _data(item.value)) for item in found]

        return await self._within(search)

    async def _within(self, work: Callable[[Items | None], Awaitable[T]]) -> T:
        async def within(engine: Engine) -> T:
            thread = await self._owner(engine=engine).find(self._session_id)
            return await work(None if thread is None else Items(handle_of(thread)))

        return await self._call(within)

    async def _call(self, work: Callable[[Engine], Awaitable[T]]) -> T:
        return await asyncio.to_thread(self._engine.call, work)


def _storage_value(data: bytes) -> Mapping[str, object]:
    """Bytes as JSON: a text, with its type if it is framed as an offloaded content is, or base64."""
    end = _HEAD + int.from_bytes(data[:_HEAD])
    kind = data[_HEAD:end]
    is_framed = len(data) > _HEAD and _KIND.fullmatch(kind) is not None and len(kind) == end - _HEAD
    try:
        if is_framed:
            return {"type": kind.decode(), "text": data[end:].decode()}
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _data(value: Mapping[str, object]) -> bytes:
    if "base64" in value:
        return base64.b64decode(str(value["base64"]))
    text = str(value["text"]).encode()
    if "type" not in value:
        return text
    kind = str(value["type"]).encode()
    return len(kind).to_bytes(_HEAD) + kind + text
