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
    __version__: str
    from memory_engine.administration.retention import RetentionRule as RetentionRule
    from memory_engine.agents.lifecycle import AgentLifecycle as AgentLifecycle
    from memory_engine.agents.tools import MemoryTools as MemoryTools
    from memory_engine.agents.tools import memory_tools as memory_tools
    from memory_engine.compaction.base import CompactionContext as CompactionContext
    from memory_engine.compaction.base import CompactionResult as CompactionResult
    from memory_engine.compaction.base import Compactor as Compactor
    from memory_engine.compaction.protocol import CompactionReport as CompactionReport
    from memory_engine.context.budget import ContextPolicy as ContextPolicy
    from memory_engine.context.context import Context as Context
    from memory_engine.core.chunks import Category as Category
    from memory_engine.core.chunks import Chunk as Chunk
    from memory_engine.core.chunks import ChunkType as ChunkType
    from memory_engine.core.chunks import Retention as Retention
    from memory_engine.core.operations import Add as Add
    from memory_engine.core.operations import Batch as Batch
    from memory_engine.core.operations import BatchReplace as BatchReplace
    from memory_engine.core.operations import Delete as Delete
    from memory_engine.core.operations import Operation as Operation
    from memory_engine.core.operations import Reorder as Reorder
    from memory_engine.core.operations import Replace as Replace
    from memory_engine.core.operations import Update as Update
    from memory_engine.core.records import NewEvent as NewEvent
    from memory_engine.core.records import Receipt as Receipt
    from memory_engine.core.records import RecordedEvent as RecordedEvent
    from memory_engine.core.reduction import ReduceContext as ReduceContext
    from memory_engine.core.reduction import Reducer as Reducer
    from memory_engine.core.reduction import Reduction as Reduction
    from memory_engine.core.state import State as State
    from memory_engine.core.state import StateView as StateView
    from memory_engine.core.threads import CompactionPolicy as CompactionPolicy
    from memory_engine.core.threads import ThreadInfo as ThreadInfo
    from memory_engine.engine import Engine as Engine
    from memory_engine.events import *  # noqa: F403
    from memory_engine.language.masking import Mask as Mask
    from memory_engine.language.masking import SecretMask as SecretMask
    from memory_engine.llm.vectors import Embedder as Embedder
    from memory_engine.options import Models as Models
    from memory_engine.options import Parts as Parts
    from memory_engine.plugins import Plugin as Plugin
    from memory_engine.projections.base import Projection as Projection
    from memory_engine.projections.base import Rows as Rows
    from memory_engine.projections.base import View as View
    from memory_engine.runtime.config import ConversationLimits as ConversationLimits
    from memory_engine.runtime.config import EngineConfig as EngineConfig
    from memory_engine.runtime.correlation import caused_by as caused_by
    from memory_engine.runtime.correlation import correlated as correlated
    from memory_engine.runtime.queue import BlockingReason as BlockingReason
    from memory_engine.scopes import Agent as Agent
    from memory_engine.scopes import Tenant as Tenant
    from memory_engine.scopes import User as User
    from memory_engine.storage.places import restore as restore
    from memory_engine.store.keys import KeySource as KeySource
    from memory_engine.thread import Thread as Thread
    from memory_engine.views.preferences.domain import Domain as Domain
    from memory_engine.views.preferences.domain import Kind as Kind
    from memory_engine.views.preferences.rules import Rules as Rules
    from memory_engine.views.scratchpad.view import Snippet as Snippet
    from memory_engine.views.screen.view import ProactiveTool as ProactiveTool
    from memory_engine.wiring import open as open

_HOMES = {
    "agents.lifecycle": "AgentLifecycle",
    "agents.tools": "MemoryTools memory_tools",
    "compaction.base": "CompactionContext CompactionResult Compactor",
    "compaction.protocol": "CompactionReport",
    "context.budget": "ContextPolicy",
    "context.context": "Context",
    "core.chunks": "Category Chunk ChunkType Retention",
    "core.operations": "Add Batch BatchReplace Delete Operation Reorder Replace Update",
    "core.records": "NewEvent Receipt RecordedEvent",
    "core.reduction": "ReduceContext Reducer Reduction",
    "core.state": "State StateView",
    "engine": "Engine",
    "language.masking": "Mask SecretMask",
    "llm.vectors": "Embedder",
    "options": "Models Parts",
    "plugins": "Plugin",
    "projections.base": "Projection Rows View",
    "core.threads": "CompactionPolicy ThreadInfo",
    "administration.retention": "RetentionRule",
    "runtime.config": "ConversationLimits EngineConfig",
    "runtime.correlation": "caused_by correlated",
    "runtime.queue": "BlockingReason",
    "scopes": "Agent Tenant User",
    "thread": "Thread",
    "views.preferences.domain": "Domain Kind",
    "views.preferences.rules": "Rules",
    "views.scratchpad.view": "Snippet",
    "views.screen.view": "ProactiveTool",
    "wiring": "open",
    "storage.places": "restore",
    "store.keys": "KeySource",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


_BUILTIN = {"open"}
"""What Python has too: `from memory_engine import *` leaves that as it is."""
_MODULES = ("errors", "events", "sync", "testing")


def __getattr__(name: str) -> object:
    """Import a public name from its home; any other is looked for among the events."""
    if name == "__all__":
        return _public()
    if name == "__version__":
        return importlib.import_module("memory_engine.core.version").installed_version()
    if name in _MODULES:
        return importlib.import_module(f"memory_engine.{name}")
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return getattr(importlib.import_module(f"memory_engine.{_HOME_OF.get(name, 'events')}"), name)
    except AttributeError:
        raise AttributeError(f"module 'memory_engine' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    """The public names, whether they have been asked for or not, and the modules that people import."""
    own = {name for name in globals() if name.startswith("_")}
    return sorted({*own, *_public(), *_BUILTIN, *_MODULES, "__all__", "__version__"})


def _public() -> list[str]:
    events = importlib.import_module("memory_engine.events")
    names = {*_HOME_OF, *(name for name in events.__all__ if name[0].isupper())}
    return sorted(names - _BUILTIN)
