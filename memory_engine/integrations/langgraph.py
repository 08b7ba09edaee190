"""Checkpoints of LangGraph in this memory: what changed in a step is kept, and messages become a thread's events.

    from memory_engine.integrations.langgraph import MemoryEngineSaver

    async with memory_engine.open("agent.db") as engine:
        graph = builder.compile(checkpointer=MemoryEngineSaver(engine))

Needs the extra `langgraph`. A LangGraph thread is the engine's thread of the same id. Messages of its root graph are
events beside the checkpoints, so that contexts, search, compaction and the inspector work on it.
"""

import asyncio
import json
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Coroutine, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.records import NewEvent
from memory_engine.engine import Engine
from memory_engine.errors import MissingExtra, ThreadNotFound
from memory_engine.projections.base import ReadableRows
from memory_engine.runtime.messages import as_events
from memory_engine.thread import Thread
from memory_engine.views.checkpoints.events import (
    ChannelValue,
    ChannelWrite,
    CheckpointName,
    CheckpointSaved,
    CheckpointsDropped,
    CheckpointWritten,
    ItemPlace,
    ItemSpan,
    Packed,
)
from memory_engine.views.checkpoints.view import (
    CHECKPOINTS,
    AnyCheckpointRow,
    CheckpointRow,
    WritesRow,
    checkpoint_key,
    checkpoints_in,
    hidden_key,
    items_between,
    writes_key,
)

try:
    from langchain_core.messages import BaseMessage, convert_to_openai_messages
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        get_checkpoint_id,
        get_checkpoint_metadata,
        writes_sort_key,
    )
except ImportError:
    raise MissingExtra("LangGraph's checkpoints", "langgraph") from None

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import PendingWrite
    from langgraph.checkpoint.serde.base import SerializerProtocol

T = TypeVar("T")

MARK = {"checkpoints": "langgraph"}
"""Metadata of the threads that a saver makes."""
ITEMS_MIN = 64
"""Bytes of a list from which on its items are kept apart."""
EVENTS_KEPT = 4_096
"""Events of checkpoints that a saver remembers: what a checkpoint repeats is not read again."""
LISTS_KEPT = 256
"""Lists whose items a saver remembers, to see what is new in the next one."""
_ARRAY = msgspec.msgpack.Decoder(list[msgspec.Raw])


class _Items(msgspec.Struct, frozen=True):
    """The items of a list that was saved: their digests and their numbers, in order."""

    digests: tuple[bytes, ...] = ()
    numbers: tuple[int, ...] = ()


class MemoryEngineSaver(BaseCheckpointSaver[str]):
    """Keeps the checkpoints of graphs in an engine's threads. For `await` on any event loop, and for other threads.

    `messages` is the channel whose messages become events. The scopes are those of the threads that it makes. Calls
    without `await` raise `RuntimeError` on the engine's own loop, as they could not come to an end there.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        messages: str = "messages",
        user_id: str = "",
        tenant_id: str = "",
        agent_id: str = "",
        serde: "SerializerProtocol | None" = None,
    ) -> None:
        super().__init__(serde=serde)
        self.engine = engine
        self._messages = messages
        self._scopes = {"user_id": user_id, "tenant_id": tenant_id, "agent_id": agent_id}
        self._loop = asyncio.get_running_loop()
        self._events: OrderedDict[tuple[str, int], Event] = OrderedDict()
        self._lists: OrderedDict[tuple[str, str, str], tuple[str, _Items]] = OrderedDict()
        self._written: OrderedDict[tuple[str, bytes], tuple[int, int]] = OrderedDict()
        self._generation = engine.store.generation

    # reading

    async def aget_tuple(self, config: "RunnableConfig") -> CheckpointTuple | None:
        """The checkpoint that a config names, or the latest of its namespace."""
        return await self._here(self._get_tuple(config))

    async def _get_tuple(self, config: "RunnableConfig") -> CheckpointTuple | None:
        thread, namespace = self._thread(config), _namespace(config)
        rows = await self._rows(thread)
        wanted = get_checkpoint_id(config) or next(iter(checkpoints_in(rows, namespace)), None)
        return await self._read(thread, rows, namespace, wanted) if wanted else None

    async def alist(
        self,
        config: "RunnableConfig | None",
        *,
        filter: dict[str, Any] | None = None,
        before: "RunnableConfig | None" = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints that match, the latest first: of one thread, or of all that this kind of saver has made."""
        names = await self._here(self._names(config, before))
        for thread_id, namespace, checkpoint_id in names:
            if limit is not None and limit <= 0:
                return
            found = await self._here(self._listed(thread_id, namespace, checkpoint_id))
            if found is None or any(found.metadata.get(key) != value for key, value in (filter or {}).items()):
                continue
            limit = None if limit is None else limit - 1
            yield found

    async def _names(
        self, config: "RunnableConfig | None", before: "RunnableConfig | None"
    ) -> list[tuple[str, str, str]]:
        """Thread, namespace and id of the checkpoints that a config and a bound let through, the latest first."""
        threads = [self._thread(config)] if config else await self._threads()
        asked = config["configurable"] if config else {}
        namespace, wanted = asked.get("checkpoint_ns"), get_checkpoint_id(config) if config else None
        bound = get_checkpoint_id(before) if before else None
        found = [
            (thread.id, ns, checkpoint_id)
            for thread in threads
            for ns, checkpoint_id in _all_names(await self._rows(thread))
            if namespace in (None, ns) and wanted in (None, checkpoint_id) and (not bound or checkpoint_id < bound)
        ]
        return sorted(found, key=lambda name: name[2], reverse=True)

    async def _listed(self, thread_id: str, namespace: str, checkpoint_id: str) -> CheckpointTuple | None:
        thread = self.engine.thread(thread_id)
        return await self._read(thread, await self._rows(thread), namespace, checkpoint_id)

    async def _read(
        self, thread: Thread, rows: ReadableRows[AnyCheckpointRow], namespace: str, checkpoint_id: str
    ) -> CheckpointTuple | None:
        row = rows.get(checkpoint_key(namespace, checkpoint_id))
        if not isinstance(row, CheckpointRow):
            return None
        written = rows.get(writes_key(namespace, checkpoint_id))
        seqs = written.seqs if isinstance(written, WritesRow) else ()
        events = await self._at(thread, [row.seq, *seqs])
        saved = cast("CheckpointSaved", events[row.seq])
        values = await self._values(thread, rows, saved, row)
        checkpoint: Checkpoint = {**self._unpacked(saved.state), "channel_values": values}
        writes = self._writes([cast("CheckpointWritten", events[seq]) for seq in seqs])
        return CheckpointTuple(
            _config(thread.id, namespace, checkpoint_id),
            checkpoint,
            json.loads(saved.metadata),
            _config(thread.id, namespace, row.parent) if row.parent else None,
            writes,
        )

    async def _values(
        self, thread: Thread, rows: ReadableRows[AnyCheckpointRow], saved: CheckpointSaved, row: CheckpointRow
    ) -> dict[str, Any]:
        """The values of a checkpoint's channels, each whole again."""
        held = await self._held(thread, rows, saved, row)
        lists = {name: _numbers(value, first) for name, (value, first) in held.items() if value.spans is not None}
        items = await self._items(thread, rows, {number for numbers in lists.values() for number in numbers})
        values: dict[str, Any] = {}
        for name, (value, _) in held.items():
            if value.spans is None:
                values[name] = self._unpacked(cast("Packed", value.value))
                continue
            shown = [number for number in lists[name] if number in items]
            pieces = [items[number] for number in shown]
            self._remember(thread.id, saved.namespace, value, _Items(tuple(map(_digest, pieces)), tuple(shown)))
            values[name] = self.serde.loads_typed(("msgpack", _joined(pieces)))
        return values

    async def _held(
        self, thread: Thread, rows: ReadableRows[AnyCheckpointRow], saved: CheckpointSaved, row: CheckpointRow
    ) -> dict[str, tuple[ChannelValue, int]]:
        """Each channel's value as an event holds it, with the number of the first item that the event brought."""
        others = await self._at(thread, {value.seq for value in saved.values if value.seq})
        held: dict[str, tuple[ChannelValue, int]] = {}
        for value in saved.values:
            if not value.seq:
                held[value.channel] = value, row.first
                continue
            other = cast("CheckpointSaved", others[value.seq])
            theirs = next(one for one in other.values if one.channel == value.channel)
            held[value.channel] = theirs, other.first
        return held
