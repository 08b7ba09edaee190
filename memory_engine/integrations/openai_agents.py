"""Sessions of the OpenAI Agents SDK in this memory: each item byte for byte, and as an event of a thread.

    from memory_engine.integrations.openai_agents import MemoryEngineSession

    async with memory_engine.open("agent.db") as engine:
        result = await Runner.run(agent, "Hello", session=MemoryEngineSession("chat", engine))

Needs the extra `openai-agents`. A session is the engine's thread of the same id, so that contexts, search, compaction
and the inspector work on it.
"""

import asyncio
import json
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from memory_engine import sync
from memory_engine.engine import Engine
from memory_engine.errors import EngineClosed, InvalidArgument, MissingExtra, ThreadNotFound
from memory_engine.formats import openai_responses
from memory_engine.integrations.home import HomeLoop
from memory_engine.integrations.owned import OwnedThreads
from memory_engine.integrations.recalled import RECALL_TOKENS, newest_request, recall_tokens_of, recalled
from memory_engine.thread import Thread, handle_of
from memory_engine.views.session_items.view import Item, SessionItems

try:
    from agents.memory.session_settings import (  # pyright: ignore[reportMissingImports]
        SessionSettings,
        coerce_session_settings,
        resolve_session_limit,
    )
except ImportError:
    raise MissingExtra("sessions of OpenAI Agents", "openai-agents") from None

if TYPE_CHECKING:
    from agents.items import TResponseInputItem  # pyright: ignore[reportMissingImports]
    from agents.run_config import CallModelData, ModelInputData  # pyright: ignore[reportMissingImports]

T = TypeVar("T")
History = Literal["all", "context"]


class MemoryEngineSession:
    """A `Session` of the SDK in an engine's thread. Making it reads and writes nothing.

    `engine` is an open engine: make the session on its event loop, and await its methods on any.
    Or it is a path or a URL, as for `open`: then the session opens it at its first use, in a separate thread, for
    programs without an event loop (`Runner.run_sync`), until `close`.

    `history` is what the model gets: `"all"` items, or the thread's `"context"` within `max_tokens`,
    with what was compacted and what is known of the user. The first item makes the thread, with these scopes; every
    method raises `ThreadDiffers` for the thread of another user or tenant. `recall` is for `with_recall`.
    """

    session_settings: SessionSettings | None

    def __init__(  # noqa: PLR0913 - scopes are keywords of the public face
        self,
        session_id: str,
        engine: Engine | str | os.PathLike[str],
        *,
        history: History = "all",
        max_tokens: int | None = None,
        user_id: str = "",
        tenant_id: str = "",
        agent_id: str = "",
        recall: bool = False,
        recall_tokens: int = RECALL_TOKENS,
        session_settings: SessionSettings | dict[str, object] | None = None,
    ) -> None:
        if history not in ("all", "context"):
            raise InvalidArgument("history", history, 'give "all" or "context"')
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        self._home = _OpenEngine(engine) if isinstance(engine, Engine) else _OwnEngine(os.fspath(engine))
        self._history = history
        self._max_tokens = max_tokens
        self._recall_tokens = recall_tokens_of(recall, recall_tokens)
        self._owner = partial(OwnedThreads, user_id=user_id, tenant_id=tenant_id, agent_id=agent_id)

    async def get_items(self, limit: int | None = None) -> "list[TResponseInputItem]":
        """The history, oldest first; with a limit (of the settings, if none is given) its latest items.

        In a context, a limit never separates calls from their outputs and reasoning: it returns fewer items instead.
        """
        limit = resolve_session_limit(limit, self.session_settings)
        return cast("list[TResponseInputItem]", await self._home.run(self._get, limit))

    async def add_items(self, items: "list[TResponseInputItem]") -> None:
        """Add items, all or none, and record each as a message of the thread."""
        await self._home.run(self._add, items)

    async def with_recall(self, data: "CallModelData[Any]") -> "ModelInputData":
        """The input of a model's call, for `RunConfig(call_model_input_filter=session.with_recall)`.

        With `recall=True`, a message before the newest one of the user says what the user's other conversations, and
        items of this one that the input lacks, hold on it. All calls of a run get the same. It is not stored.
        """
        given: list[Item] = [*data.model_data.input]
        at = newest_request([(item.get("role") == "user", _session_item_text(item)) for item in given])
        if at is None or not self._recall_tokens:
            return data.model_data
        text = await self._home.run(self._recalled, given, at)
        found: list[Item] = [{"type": "message", "role": "user", "content": text}] if text else []
        return replace(data.model_data, input=[*given[:at], *found, *given[at:]])

    async def pop_item(self) -> "TResponseInputItem | None":
        """Remove and return the latest item, or `None`. Its message is forgotten too."""
        return cast("TResponseInputItem | None", await self._home.run(self._pop))

    async def clear_session(self) -> None:
        """Start over: the thread is cleared; its log keeps what was."""
        await self._home.run(self._clear)

    def close(self) -> None:
        """Close the engine if the session opened it. A second call does nothing."""
        self._home.close()

    async def _find(self, engine: Engine) -> Thread | None:
        return await self._owner(engine=engine).find(self.session_id)

    async def _get(self, engine: Engine, limit: int | None) -> list[Item]:
        thread = await self._find(engine)
        with suppress(ThreadNotFound):
            if thread is None:
                return []
            if self._history == "context":
                return await self._context(thread, limit)
            return await SessionItems(handle_of(thread)).get(limit)
        return []

    async def _context(self, thread: Thread, limit: int | None) -> list[Item]:
        context = await thread.context(self._max_tokens)
        if not context.messages:
            return []
        rendered = context.render("openai.responses")
        items = [cast("Item", item) for item in rendered.input]
        if rendered.instructions is not None:
            items.insert(0, {"type": "message", "role": "developer", "content": rendered.instructions})
        return items if limit is None else _latest(items, limit)

    async def _add(self, engine: Engine, items: list[Item]) -> None:
        if items:
            thread = await self._owner(engine=engine).open(self.session_id)
            await SessionItems(handle_of(thread)).add(items)

    async def _recalled(self, engine: Engine, items: list[Item], at: int) -> str:
        until = json.dumps(items[: at + 1], sort_keys=True, default=str)
        return await recalled(
            self._owner(engine=engine),
            self.session_id,
            _session_item_text(items[at]),
            max_tokens=self._recall_tokens,
            beside=[_session_item_text(item) for item in items],
            request=sha256(until.encode("utf-8", "surrogatepass")).hexdigest(),
        )

    async def _pop(self, engine: Engine) -> Item | None:
        thread = await self._find(engine)
        with suppress(ThreadNotFound):
            return None if thread is None else await SessionItems(handle_of(thread)).pop()
        return None

    async def _clear(self, engine: Engine) -> None:
        thread = await self._find(engine)
        if thread is not None:
            with suppress(ThreadNotFound):
                await thread.admin.clear(reason="its session was cleared")


class _OpenEngine:
    """An engine that others opened, on the running loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._home = HomeLoop()

    async def run(self, function: Callable[..., Coroutine[object, None, T]], *arguments: object) -> T:
        """Run a function of the engine on the engine's loop."""
        return await self._home.run(function(self._engine, *arguments))

    def close(self) -> None:
        """Whoever opened the engine closes it."""


class _OwnEngine:
    """An engine that is opened at its first use, on a separate loop."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._lock = threading.Lock()
        self._engine: sync.Engine | None = None
        self._is_closed = False

    async def run(self, function: Callable[..., Coroutine[object, None, T]], *arguments: object) -> T:
        """Run a function of the engine on the engine's loop. Raises `EngineClosed`."""
        return await asyncio.to_thread(lambda: self._there().call(lambda engine: function(engine, *arguments)))

    def _there(self) -> "sync.Engine":
        with self._lock:
            if self._is_closed:
                raise EngineClosed
            if self._engine is None:
                self._engine = sync.open(self._where)
            return self._engine

    def close(self) -> None:
        """Close the engine."""
        with self._lock:
            self._is_closed = True
            if self._engine is not None:
                self._engine.close()


def _session_item_text(item: Item) -> str:
    """The words of an item, or a tool's result."""
    content: Any = item.get("content") or item.get("output") or ""
    parts = content if isinstance(content, list) else [content]
    return "\n".join(str(part.get("text") or "") if isinstance(part, Mapping) else str(part) for part in parts)


def _latest(items: list[Item], limit: int) -> list[Item]:
    """The latest items, starting at an input or at an answer."""
    starts = (at for at, run in openai_responses.runs(items) if run[0].get("type") not in openai_responses.OUTPUTS)
    return next((items[at:] for at in starts if at >= len(items) - limit), [])
