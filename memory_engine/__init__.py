"""An event-sourced memory engine for agents: it loses nothing, explains everything and is fast.

    import memory_engine
    from memory_engine import UserMessage

    async with memory_engine.open("agent.db") as engine:
        thread = await engine.create_thread(user_id="u1")
        await thread.dispatch(UserMessage(content="Hello"))
        context = await thread.context(max_tokens=8_000)

Names are imported when they are first asked for, so that importing the package costs little.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory_engine.chunks import Category as Category
    from memory_engine.chunks import Chunk as Chunk
    from memory_engine.chunks import ChunkType as ChunkType
    from memory_engine.chunks import Retention as Retention
    from memory_engine.compaction import CompactionContext as CompactionContext
    from memory_engine.compaction import CompactionResult as CompactionResult
    from memory_engine.compaction import Compactor as Compactor
    from memory_engine.compaction.running import CompactionReport as CompactionReport
    from memory_engine.config import EngineConfig as EngineConfig
    from memory_engine.context import Context as Context
    from memory_engine.context import ContextPolicy as ContextPolicy
    from memory_engine.context import ContextShares as ContextShares
    from memory_engine.correlation import caused_by as caused_by
    from memory_engine.correlation import correlated as correlated
    from memory_engine.engine import Engine as Engine
    from memory_engine.events import *  # noqa: F403
    from memory_engine.lifecycle import AgentLifecycle as AgentLifecycle
    from memory_engine.operations import Add as Add
    from memory_engine.operations import Batch as Batch
    from memory_engine.operations import BatchReplace as BatchReplace
    from memory_engine.operations import Delete as Delete
    from memory_engine.operations import Operation as Operation
    from memory_engine.operations import Reorder as Reorder
    from memory_engine.operations import Replace as Replace
    from memory_engine.operations import Update as Update
    from memory_engine.persistence import CompactionPolicy as CompactionPolicy
    from memory_engine.plugins import Plugin as Plugin
    from memory_engine.projections import Projection as Projection
    from memory_engine.projections import Rows as Rows
    from memory_engine.projections import View as View
    from memory_engine.projections.conversation.limits import ConversationLimits as ConversationLimits
    from memory_engine.projections.preferences.domain import Domain as Domain
    from memory_engine.projections.preferences.kinds import Kind as Kind
    from memory_engine.projections.preferences.rules import Rules as Rules
    from memory_engine.projections.scratchpad import Snippet as Snippet
    from memory_engine.projections.screen import ProactiveTool as ProactiveTool
    from memory_engine.queue import BlockingReason as BlockingReason
    from memory_engine.recall.base import Embedder as Embedder
    from memory_engine.records import NewEvent as NewEvent
    from memory_engine.records import Receipt as Receipt
    from memory_engine.records import RecordedEvent as RecordedEvent
    from memory_engine.reducing import ReduceContext as ReduceContext
    from memory_engine.reducing import Reducer as Reducer
    from memory_engine.reducing import Reduction as Reduction
    from memory_engine.scopes import Agent as Agent
    from memory_engine.scopes import Tenant as Tenant
    from memory_engine.scopes import User as User
    from memory_engine.selfop import MemoryTools as MemoryTools
    from memory_engine.selfop import memory_tools as memory_tools
    from memory_engine.state import State as State
    from memory_engine.state import StateView as StateView
    from memory_engine.thread import Thread as Thread
    from memory_engine.thread_info import ThreadInfo as ThreadInfo
    from memory_engine.wiring import open as open

_HOMES = {
    "chunks": "Category Chunk ChunkType Retention",
    "compaction": "CompactionContext CompactionResult Compactor",
    "compaction.running": "CompactionReport",
    "config": "EngineConfig",
    "context": "Context ContextPolicy ContextShares",
    "correlation": "caused_by correlated",
    "engine": "Engine",
    "operations": "Add Batch BatchReplace Delete Operation Reorder Replace Update",
    "persistence": "CompactionPolicy",
    "plugins": "Plugin",
    "projections": "Projection Rows View",
    "queue": "BlockingReason",
    "records": "NewEvent Receipt RecordedEvent",
    "reducing": "ReduceContext Reducer Reduction",
    "state": "State StateView",
    "thread": "Thread",
    "thread_info": "ThreadInfo",
    "lifecycle": "AgentLifecycle",
    "projections.conversation.limits": "ConversationLimits",
    "projections.preferences.domain": "Domain",
    "projections.preferences.kinds": "Kind",
    "projections.preferences.rules": "Rules",
    "projections.screen": "ProactiveTool",
    "projections.scratchpad": "Snippet",
    "recall.base": "Embedder",
    "scopes": "Agent Tenant User",
    "selfop": "MemoryTools memory_tools",
    "wiring": "open",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a public name from its home; any other is looked for among the events."""
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return getattr(importlib.import_module(f"memory_engine.{_HOME_OF.get(name, 'events')}"), name)
    except AttributeError:
        raise AttributeError(f"module 'memory_engine' has no attribute {name!r}") from None
