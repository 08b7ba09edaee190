"""Checkpoints of LangGraph in this memory: each step's changes, with messages as a thread's events.

    from memory_engine.integrations.langgraph import MemoryEngineSaver

    async with memory_engine.open("agent.db") as engine:
        graph = builder.compile(checkpointer=MemoryEngineSaver(engine))

Needs the extra `langgraph`. A LangGraph thread is the engine's thread of the same id. The messages of its root graph
are events among the checkpoints, so that contexts, search, compaction and the inspector work on it.
"""

import builtins
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import uuid4

from memory_engine.engine import Engine
from memory_engine.errors import MissingExtra, ThreadNotFound
from memory_engine.integrations.brief import BRIEF_TOKENS, brief_of
from memory_engine.integrations.home import HomeLoop
from memory_engine.integrations.langgraph_branches import GraphMessages, LeftEvents
from memory_engine.integrations.langgraph_messages import langgraph_text, with_text
from memory_engine.integrations.langgraph_store import MemoryEngineStore
from memory_engine.integrations.owned import OwnedThreads
from memory_engine.integrations.recalled import RECALL_TOKENS, newest_request, recall_tokens_of, recalled
from memory_engine.thread import handle_of
from memory_engine.views.checkpoints.events import CheckpointName, CheckpointSaved
from memory_engine.views.checkpoints.packing import Form
from memory_engine.views.checkpoints.pieces import JSON
from memory_engine.views.checkpoints.view import CheckpointCache, Checkpoints, Draft, Given, Saved, Write

try:
    from langchain_core.messages import BaseMessage, HumanMessage
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

__all__ = ["MemoryEngineSaver", "MemoryEngineStore"]

T = TypeVar("T")

MARK = {"checkpoints": "langgraph"}
"""Metadata of the threads that a saver makes."""
VERSION_WIDTH = 10
"""How many digits a channel's version has. Versions are compared as texts."""


class Rest(NamedTuple):
    """A checkpoint without its values: the id of the one before, its state, its metadata as JSON."""

    parent: str
    state: Form
    metadata: str


class MemoryEngineSaver(BaseCheckpointSaver[str]):
    """Keeps the checkpoints of graphs in an engine's threads. Make it on the event loop that the engine was opened on.

    Await it on any event loop, or call it without `await` from any thread but the engine's own: there
    such a call raises `RuntimeError`, since it would wait for itself. `messages` is the channel whose messages become
    events. New threads get the scopes; every method raises `ThreadDiffers` for a thread of another user or tenant, and
    lists none. `recall` is for `awith_recall`.
    """

    def __init__(  # noqa: PLR0913 - scopes are keywords of the public face
        self,
        engine: Engine,
        *,
        messages: str = "messages",
        user_id: str = "",
        tenant_id: str = "",
        agent_id: str = "",
        recall: bool = False,
        recall_tokens: int = RECALL_TOKENS,
        serde: "SerializerProtocol | None" = None,
    ) -> None:
        super().__init__(serde=serde)
        self.engine = engine
        self._messages = messages
        self._recall_tokens = recall_tokens_of(recall, recall_tokens)
        self._threads = OwnedThreads(
            engine=engine, user_id=user_id, tenant_id=tenant_id, agent_id=agent_id, metadata=MARK
        )
        self._home = HomeLoop()
        self._cache = CheckpointCache()
        self._left = LeftEvents()

    # on any event loop

    async def aget_tuple(self, config: "RunnableConfig") -> CheckpointTuple | None:
        """The checkpoint that a config names, or the latest of its namespace."""
        return await self._home.run(self._get_tuple(config))

    async def alist(
        self,
        config: "RunnableConfig | None",
        *,
        filter: dict[str, Any] | None = None,
        before: "RunnableConfig | None" = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints that match, the latest first: of one thread, or of all of these scopes that savers have made."""
        for thread_id, name in await self._home.run(self._names(config, before)):
            if limit is not None and limit <= 0:
                return
            found = await self._home.run(self._read(thread_id, name))
            if found is None or not _metadata_matches(found.metadata, filter):
                continue
            limit = None if limit is None else limit - 1
            yield self._tuple(thread_id, found)

    async def aput(
        self,
        config: "RunnableConfig",
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> "RunnableConfig":
        """Save a checkpoint: its changes, and the new messages as events, in one commit."""
        return await self._home.run(self._put(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: "RunnableConfig", writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save what a task wrote on the way to the next checkpoint."""
        await self._home.run(self._put_writes(config, writes, task_id, task_path))

    async def awith_brief(
        self, config: "RunnableConfig", messages: "Sequence[BaseMessage]", *, max_tokens: int = BRIEF_TOKENS
    ) -> "builtins.list[BaseMessage]":
        """The messages of a model's request, with one in front that holds the brief of the thread.

        It says what people said and still holds, as far as the messages do not say it, behind a system message at their
        beginning. Give the result to the model, and do not return it from a node: the state keeps the talk alone.
        """
        beside = [langgraph_text(one) for one in messages]
        text = await self._home.run(brief_of(self._threads, _thread_id(config), beside=beside, max_tokens=max_tokens))
        return with_text(messages, text)

    async def awith_recall(
        self, config: "RunnableConfig", messages: "Sequence[BaseMessage]"
    ) -> "builtins.list[BaseMessage]":
        """The messages of a model's request, with one before the newest of the user that holds what is recalled for it.

        With `recall=True` it says what the user's other threads, and messages of this one that are not given, hold on
        the newest message, in at most `recall_tokens` tokens; else the messages do not change. It is the same until
        the user's next message. Give the result to the model, and do not return it from a node.
        """
        beside = [langgraph_text(one) for one in messages]
        at = newest_request([(isinstance(one, HumanMessage), langgraph_text(one)) for one in messages])
        text = await self._home.run(
            recalled(
                self._threads,
                _thread_id(config),
                "" if at is None else beside[at],
                max_tokens=self._recall_tokens,
                beside=beside,
                request="" if at is None else messages[at].id or f"{at} {beside[at]}",
            )
        )
        return with_text(messages, text, at)

    async def adelete_thread(self, thread_id: str) -> None:
        """Destroy a thread: its checkpoints, its messages and everything derived from them. Its id is free again."""
        await self._home.run(self._delete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Drop the checkpoints of runs, in every thread with these scopes. The log keeps them."""
        await self._home.run(self._delete_for_runs(frozenset(run_ids)))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Drop all checkpoints of threads (`delete`), or all but each namespace's latest. The log keeps them.

        Earlier ones that a `DeltaChannel` of the latest needs are kept too.
        """
        await self._home.run(self._prune(thread_ids, strategy))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread, and the writes after each, to another thread."""
        await self._home.run(self._copy_thread(source_thread_id, target_thread_id))

    # from other threads

    def get_tuple(self, config: "RunnableConfig") -> CheckpointTuple | None:
        """See `aget_tuple`."""
        return self._home.wait(self._get_tuple(config))

    def list(
        self,
        config: "RunnableConfig | None",
        *,
        filter: dict[str, Any] | None = None,
        before: "RunnableConfig | None" = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """See `alist`."""
        found = self.alist(config, filter=filter, before=before, limit=limit)
        while (one := self._home.wait(_next_or_none(found))) is not None:
            yield one

    def put(
        self,
        config: "RunnableConfig",
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> "RunnableConfig":
        """See `aput`."""
        return self._home.wait(self._put(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: "RunnableConfig", writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See `aput_writes`."""
        self._home.wait(self._put_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """See `adelete_thread`."""
        self._home.wait(self._delete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See `adelete_for_runs`."""
        self._home.wait(self._delete_for_runs(frozenset(run_ids)))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See `aprune`."""
        self._home.wait(self._prune(thread_ids, strategy))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See `acopy_thread`."""
        self._home.wait(self._copy_thread(source_thread_id, target_thread_id))

    def get_next_version(self, current: str | int | float | None, channel: None) -> str:
        """The next version of a channel: a number, as wide as the one before, and something of its own."""
        number = "0" * VERSION_WIDTH if current is None else str(current).partition(".")[0]
        return f"{int(number) + 1:0{max(len(number), VERSION_WIDTH)}}.{uuid4().hex[:8]}"

    # on the engine's loop

    async def _found(self, thread_id: str) -> Checkpoints | None:
        """Those of a thread; `None` if it is not there. Raises `ThreadDiffers`."""
        thread = await self._threads.find(thread_id)
        return None if thread is None else Checkpoints(handle_of(thread), self._cache)

    async def _made(self, thread_id: str) -> Checkpoints:
        """Those of a thread, which is made if it is not there. Raises `ThreadDiffers`."""
        return Checkpoints(handle_of(await self._threads.open(thread_id)), self._cache)

    async def _in(self, thread_id: str, act: Callable[[Checkpoints], Awaitable[T]]) -> T:
        """Do something in a thread, which is made if it is not there."""
        try:
            return await act(await self._made(thread_id))
        except ThreadNotFound:  # another process has deleted it meanwhile
            return await act(await self._made(thread_id))

    async def _read(self, thread_id: str, name: CheckpointName) -> Saved | None:
        checkpoints = await self._found(thread_id)
        return None if checkpoints is None else await checkpoints.read(name)

    async def _get_tuple(self, config: "RunnableConfig") -> CheckpointTuple | None:
        thread_id, namespace = _thread_id(config), _namespace(config)
        checkpoints = await self._found(thread_id)
        if checkpoints is None:
            return None
        wanted = get_checkpoint_id(config) or await checkpoints.latest(namespace)
        found = await checkpoints.read(CheckpointName(namespace, wanted))
        return None if found is None else self._tuple(thread_id, found)

    async def _names(
        self, config: "RunnableConfig | None", before: "RunnableConfig | None"
    ) -> "builtins.list[tuple[str, CheckpointName]]":
        """The checkpoints that a config and a bound let through, each with its thread's id, the latest first."""
        thread_ids = [_thread_id(config)] if config else await self._thread_ids()
        namespace = config["configurable"].get("checkpoint_ns") if config else None
        wanted, bound = (get_checkpoint_id(one) if one else None for one in (config, before))
        found = [
            (thread_id, name)
            for thread_id in thread_ids
            for name in await self._names_in(thread_id)
            if namespace in (None, name.namespace) and wanted in (None, name.id) and (not bound or name.id < bound)
        ]
        return sorted(found, key=lambda one: one[1].id, reverse=True)

    async def _names_in(self, thread_id: str) -> Sequence[CheckpointName]:
        checkpoints = await self._found(thread_id)
        return () if checkpoints is None else await checkpoints.names()

    async def _thread_ids(self) -> "builtins.list[str]":
        return [info.id for info in await self._threads.list()]

    def _tuple(self, thread_id: str, found: Saved) -> CheckpointTuple:
        values = {channel: self._loads(value) for channel, value in found.values.items()}
        checkpoint: Checkpoint = {**self._loads(found.state), "channel_values": values}
        written: dict[tuple[str, int], Write] = {}
        for write in found.writes:
            if write.index < 0:
                written[write.task_id, write.index] = write
            else:
                written.setdefault((write.task_id, write.index), write)
        ordered = sorted(written.values(), key=lambda one: writes_sort_key(one.task_path, one.task_id, one.index))
        writes: builtins.list[PendingWrite] = [(one.task_id, one.channel, self._loads(one.value)) for one in ordered]
        parent = _config(thread_id, CheckpointName(found.name.namespace, found.parent)) if found.parent else None
        return CheckpointTuple(_config(thread_id, found.name), checkpoint, json.loads(found.metadata), parent, writes)

    async def _put(
        self,
        config: "RunnableConfig",
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> "RunnableConfig":
        thread_id = _thread_id(config)
        name, parent = CheckpointName(_namespace(config), checkpoint["id"]), get_checkpoint_id(config) or ""
        values = checkpoint["channel_values"]
        given = {
            channel: Given(
                json.dumps(checkpoint["channel_versions"].get(channel)),
                channel in new_versions,
                partial(self.serde.dumps_typed, value),
            )
            for channel, value in values.items()
        }
        state = self._state({key: value for key, value in checkpoint.items() if key != "channel_values"})
        about = json.dumps(get_checkpoint_metadata(config, metadata), ensure_ascii=False)
        rest = Rest(parent, state, about)

        said = values.get(self._messages)

        async def save(checkpoints: Checkpoints) -> None:
            await self._save(checkpoints, await checkpoints.draft(name, parent, given), rest, said)

        await self._in(thread_id, save)
        return _config(thread_id, name)

    async def _save(self, checkpoints: Checkpoints, draft: Draft, rest: "Rest", messages: object) -> None:
        """Save a checkpoint, and the new messages of the root graph as events with it."""
        graph = GraphMessages(checkpoints, draft, self._messages, self._loads, self._left)
        beside = () if draft.name.namespace else await graph.events(rest.parent, messages)
        await checkpoints.save(draft, rest.parent, rest.state, rest.metadata, beside=beside)
        await graph.forget_rewritten()

    def _state(self, state: Mapping[str, object]) -> Form:
        """All of a checkpoint but its values: JSON, where that says the same."""
        text = json.dumps(state, ensure_ascii=False, separators=(",", ":"), default=str)
        return (JSON, text.encode()) if json.loads(text) == state else self.serde.dumps_typed(state)

    def _loads(self, value: Form) -> Any:
        return json.loads(value[1]) if value[0] == JSON else self.serde.loads_typed(value)

    async def _put_writes(
        self, config: "RunnableConfig", writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        name = CheckpointName(_namespace(config), config["configurable"]["checkpoint_id"])
        written = [
            Write(channel, WRITES_IDX_MAP.get(channel, index), self.serde.dumps_typed(value))
            for index, (channel, value) in enumerate(writes)
        ]

        async def write(checkpoints: Checkpoints) -> None:
            await checkpoints.write(name, task_id, task_path, written)

        await self._in(_thread_id(config), write)

    async def _delete_thread(self, thread_id: str) -> None:
        thread = await self._threads.find(thread_id)
        if thread is not None:
            with suppress(ThreadNotFound):
                await thread.admin.delete(reason="its graph deleted it")

    async def _delete_for_runs(self, run_ids: frozenset[str]) -> None:
        for checkpoints in filter(None, [await self._found(thread_id) for thread_id in await self._thread_ids()]):
            found = await checkpoints.events()
            await checkpoints.drop([n for n, saved in found.items() if _metadata(saved).get("run_id") in run_ids])

    async def _prune(self, thread_ids: Sequence[str], strategy: str) -> None:
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f'strategy {strategy!r}: give "keep_latest" or "delete"')
        for checkpoints in filter(None, [await self._found(thread_id) for thread_id in thread_ids]):
            found = await checkpoints.events()
            latest = {name.namespace: name for name in sorted(found, key=lambda name: name.id)}
            kept = {one for name in latest.values() for one in _needed(found, name)} if strategy != "delete" else set()
            await checkpoints.drop([name for name in found if name not in kept])

    async def _copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        source, target = await self._found(source_thread_id), await self._made(target_thread_id)
        if source is None:
            return
        for name in sorted(await source.names(), key=lambda name: name.id):
            found = await source.read(name)
            if found is None:
                continue
            given = {channel: Given("null", True, partial(_same, value)) for channel, value in found.values.items()}
            draft = await target.draft(name, found.parent, given)
            messages = found.values.get(self._messages)
            rest = Rest(found.parent, found.state, found.metadata)
            await self._save(target, draft, rest, None if messages is None else self._loads(messages))
            for write in found.writes:
                await target.write(name, write.task_id, write.task_path, [write])


def _needed(found: Mapping[CheckpointName, CheckpointSaved], latest: CheckpointName) -> Iterator[CheckpointName]:
    """A checkpoint, and those before it that its delta channels need."""
    missing = set(_metadata(found[latest]).get("counters_since_delta_snapshot") or ())
    name: CheckpointName | None = latest
    while name is not None and name in found:
        yield name
        missing -= {value.channel for value in found[name].values}
        parent = found[name].parent
        name = CheckpointName(latest.namespace, parent) if missing and parent else None


def _metadata(saved: CheckpointSaved) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(saved.metadata)
    return found


def _metadata_matches(metadata: str, filter: Mapping[str, Any] | None) -> bool:
    if not filter:
        return True
    known = json.loads(metadata)
    return all(known.get(key) == value for key, value in filter.items())


def _same(value: Form) -> Form:
    return value


def _thread_id(config: "RunnableConfig") -> str:
    return str(config["configurable"]["thread_id"])


def _namespace(config: "RunnableConfig") -> str:
    return str(config["configurable"].get("checkpoint_ns") or "")


def _config(thread_id: str, name: CheckpointName) -> "RunnableConfig":
    return {
        "configurable": {"thread_id": thread_id, "checkpoint_ns": name.namespace, "checkpoint_id": name.id},
    }


async def _next_or_none(found: "AsyncIterator[T]") -> T | None:
    return await anext(found, None)
