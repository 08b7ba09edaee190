"""A chat store of LlamaIndex in this memory: each message unchanged, and as events of a thread.

    from memory_engine import sync
    from memory_engine.integrations.llama_index import MemoryEngineChatStore

    with sync.open("agent.db") as engine:
        memory = ChatMemoryBuffer.from_defaults(chat_store=MemoryEngineChatStore(engine), chat_store_key="chat")

Needs the extra `llama-index`. A key is the engine's thread of the same id, so that contexts, search, compaction and the
inspector work on it.
"""

# pyright: reportMissingImports=false
# llama-index-core is in the environment of its tests alone

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Any

from memory_engine import sync
from memory_engine.core.events.base import Event
from memory_engine.core.events.messages import LlmTextResponse, UserMessage
from memory_engine.core.origins import SPOKEN
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import MissingExtra, ThreadNotFound
from memory_engine.integrations.brief import BRIEF_TOKENS, brief_of
from memory_engine.integrations.entries import EntryList, Json, OwnMessage, loaded
from memory_engine.integrations.owned import OwnedThreads
from memory_engine.integrations.recalled import RECALL_TOKENS, newest_request, recall_tokens_of, recalled
from memory_engine.views.records import as_json

try:
    from llama_index.core.base.llms.types import (
        ChatMessage,
        ImageBlock,
        MessageRole,
        TextBlock,
        ThinkingBlock,
        ToolCallBlock,
    )
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.memory import BaseMemoryBlock, ChatMemoryBuffer
    from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY
    from llama_index.core.storage.chat_store.base import BaseChatStore
except ImportError:
    raise MissingExtra("LlamaIndex's chat store", "llama-index") from None

MARK = "llama-index"
"""The key in the metadata of threads that are made here."""


class MemoryEngineChatStore(BaseChatStore):
    """A `BaseChatStore` in the threads of an engine that `memory_engine.sync.open` opened; any thread may call it.

    The first message of a key makes its thread, with these scopes. A key whose thread is of another user or tenant
    raises `ThreadDiffers` in every method, and is not listed. `recall` is for `with_recall`.
    """

    _engine: sync.Engine = PrivateAttr()
    _recall_tokens: int = PrivateAttr()
    _owner: "partial[OwnedThreads]" = PrivateAttr()

    def __init__(  # noqa: PLR0913 - scopes are keywords of the public face
        self,
        engine: sync.Engine,
        *,
        user_id: str = "",
        tenant_id: str = "",
        agent_id: str = "",
        recall: bool = False,
        recall_tokens: int = RECALL_TOKENS,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._recall_tokens = recall_tokens_of(recall, recall_tokens)
        self._owner = partial(
            OwnedThreads,
            user_id=user_id,
            tenant_id=tenant_id,
            agent_id=agent_id,
            metadata={MARK: "conversation"},
        )

    @classmethod
    def class_name(cls) -> str:
        """The name of the class, which the framework writes."""
        return "MemoryEngineChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Set a key's messages: keeps the common beginning, forgets the rest of the key, and adds the rest of these."""
        given = [_dumped(message) for message in messages]

        def changed(there: Sequence[Json]) -> tuple[Sequence[int], Sequence[Json]]:
            pairs = zip(there, given, strict=False)
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            return range(same, len(there)), given[same:]

        self._change(key, changed)

    def get_messages(self, key: str) -> list[ChatMessage]:
        """The messages of a key, oldest first."""
        entries = self._engine.call(lambda engine: self._entries(engine, key).get())
        return [ChatMessage.model_validate(entry) for entry in entries]

    def with_brief(
        self, key: str, messages: Sequence[ChatMessage], *, max_tokens: int = BRIEF_TOKENS
    ) -> list[ChatMessage]:
        """The messages of a request, with one in front that holds the brief of the key's thread.

        It says what people said and still holds, as far as the messages do not say it, behind a system message at their
        beginning. Give the result to the model; do not store it.
        """
        given = [*messages]
        beside = [one.content or "" for one in given]

        async def brief(engine: Engine) -> str:
            return await brief_of(self._owner(engine=engine), key, beside=beside, max_tokens=max_tokens)

        return _with(given, self._engine.call(brief), _front(given))

    def with_recall(self, key: str, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """The messages of a request, with one before the newest of the user that holds what is recalled for it.

        With `recall=True` it says what the user's other conversations, and messages of this key that are not given,
        hold on the newest message, in at most `recall_tokens` tokens; else the messages do not change. It is the
        same until the user's next message is stored. Give the result to the model; do not store it.
        """
        given = [*messages]
        text, at = self._recalled(key, given)
        return _with(given, text, _front(given) if at is None else at)

    def _recalled(self, key: str, given: Sequence[ChatMessage]) -> tuple[str, int | None]:
        """The recalled passages for the newest message of the user, and their place."""
        if not self._recall_tokens:
            return "", None
        beside = [one.content or "" for one in given]
        at = newest_request([(one.role == MessageRole.USER, text) for one, text in zip(given, beside, strict=True)])
        query = "" if at is None else beside[at]

        async def search(engine: Engine) -> str:
            owned = self._owner(engine=engine)
            request = "" if at is None else f"{await _said_at(owned, key)} {query}"
            return await recalled(owned, key, query, max_tokens=self._recall_tokens, beside=beside, request=request)

        return self._engine.call(search), at

    def add_message(self, key: str, message: ChatMessage) -> None:
        """Add a message."""
        self._change(key, lambda _there: ((), [_dumped(message)]), limit=0)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Forget all messages of a key, and return them, or `None`. The log keeps them."""
        return self._taken(key, range) or None

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Forget the message at an index, and return it, or `None`."""
        found = self._taken(key, lambda count: [idx % count] if -count <= idx < count else [])
        return found[0] if found else None

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Forget the last message, and return it, or `None`."""
        return self.delete_message(key, -1)

    def get_keys(self) -> list[str]:
        """The keys that have messages."""

        async def keys(engine: Engine) -> list[str]:
            infos = await self._owner(engine=engine).list()
            return [info.id for info in infos if await self._entries(engine, info.id).get(1)]

        return self._engine.call(keys)

    def _taken(self, key: str, which: Any) -> list[ChatMessage]:
        taken: list[Json] = []

        def changed(there: Sequence[Json]) -> tuple[Sequence[int], Sequence[Json]]:
            gone = list(which(len(there)))
            taken[:] = [there[at] for at in gone]
            return gone, ()

        self._change(key, changed)
        return [ChatMessage.model_validate(entry) for entry in taken]

    def _change(self, key: str, changed: Any, limit: int | None = None) -> None:
        async def change(engine: Engine) -> None:
            def draft(there: Sequence[Json]) -> tuple[Sequence[int], Sequence[OwnMessage]]:
                gone, added = changed(there)
                return gone, [_llama_entry(one, kernel_of(engine).new_id()) for one in added]

            await self._entries(engine, key).change(draft, limit=limit, reason="the chat store dropped it")

        self._engine.call(change)

    def _entries(self, engine: Engine, key: str) -> EntryList:
        return EntryList(self._owner(engine=engine), key)


class MemoryEngineChatBuffer(ChatMemoryBuffer):
    """A `ChatMemoryBuffer` on a `MemoryEngineChatStore` that gives its messages `with_recall`.

    What is recalled is in addition to the `token_limit`. `get_all` gives the stored messages alone.
    """

    @classmethod
    def class_name(cls) -> str:
        """The name of the class, which the framework writes."""
        return "MemoryEngineChatBuffer"

    def get(self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any) -> list[ChatMessage]:
        """The newest messages that fit, with what is recalled for the last one of the user."""
        messages = super().get(input=input, initial_token_count=initial_token_count, **kwargs)
        if isinstance(self.chat_store, MemoryEngineChatStore):
            return self.chat_store.with_recall(self.chat_store_key, messages)
        return messages


class MemoryEngineMemoryBlock(BaseMemoryBlock[str]):
    """A block of LlamaIndex's `Memory` on a `MemoryEngineChatStore`, whose `recall=True` it needs to give anything.

    What leaves the short-term memory is stored under the memory's session, or under `key`. The block gives what is
    recalled for the user's newest message: of what was stored, and of the user's other keys.
    """

    name: str = "memory_engine"
    priority: int = 0
    chat_store: MemoryEngineChatStore
    key: str = ""

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        key = self.key or str(block_kwargs.get("session_id") or DEFAULT_CHAT_STORE_KEY)
        text, _ = await asyncio.to_thread(self.chat_store._recalled, key, messages or [])
        return text

    async def _aput(self, messages: list[ChatMessage]) -> None:
        for message in messages:
            session = message.additional_kwargs.get("session_id")
            kept = {key: value for key, value in message.additional_kwargs.items() if key != "session_id"}
            own = message.model_copy(update={"additional_kwargs": kept})
            await self.chat_store.async_add_message(self.key or str(session or DEFAULT_CHAT_STORE_KEY), own)


def _with(messages: list[ChatMessage], text: str, at: int) -> list[ChatMessage]:
    shown = [ChatMessage(role=MessageRole.USER, content=text)] if text else []
    return [*messages[:at], *shown, *messages[at:]]


def _front(messages: list[ChatMessage]) -> int:
    return 1 if messages and messages[0].role == MessageRole.SYSTEM else 0


async def _said_at(threads: OwnedThreads, key: str) -> int:
    """The seq of the newest message of a person in a key's thread; 0 without one."""
    thread = await threads.find(key)
    with suppress(ThreadNotFound):
        newest = (await thread.state()).newest() if thread is not None else ()
        return next((chunk.said_at for chunk in newest if chunk.type in SPOKEN), 0)
    return 0


def _dumped(message: ChatMessage) -> Json:
    """A message as JSON. Raises `ValueError` if JSON cannot hold it, as the framework's own stores do."""
    return loaded(message.model_dump_json())


def _llama_entry(entry: Json, name: str) -> OwnMessage:
    message = ChatMessage.model_validate(entry)
    messages = _openai(message)
    texts = [str(one.get("content")) for one in messages if one.get("content")]
    said = _llama_event(message.role, "\n".join(texts)) if texts else None
    return OwnMessage(id=name, entry=entry, messages=messages, texts=_llama_texts(entry), said=said, name=name)


def _llama_event(role: MessageRole, text: str) -> Event:
    if role in _ANSWERS:
        return LlmTextResponse(content=text)
    return UserMessage(content=text, origin="tool" if role in _RESULTS else "client" if role in _ORDERS else "")


_ANSWERS = (MessageRole.ASSISTANT, MessageRole.MODEL, MessageRole.CHATBOT)
_RESULTS = (MessageRole.TOOL, MessageRole.FUNCTION)
_ORDERS = (MessageRole.SYSTEM, MessageRole.DEVELOPER)


def _llama_texts(entry: Json) -> dict[str, str]:
    blocks: Any = entry.get("blocks") or ()
    said = ((f"blocks/{n}/{key}", block.get(key)) for n, block in enumerate(blocks) for key in ("text", "content"))
    return {place: text for place, text in said if isinstance(text, str) and text}


def _openai(message: ChatMessage) -> list[dict[str, Any]]:
    """A message as chat completions' messages: one, or none if it is empty."""
    content = _llama_content(message)
    if message.role in _RESULTS:
        call_id = str(message.additional_kwargs.get("tool_call_id") or "")
        return [{"role": "tool", "tool_call_id": call_id, "content": message.content or ""}]
    if message.role not in _ANSWERS:
        return [{"role": "system" if message.role in _ORDERS else "user", "content": content}] if content else []
    found: dict[str, Any] = {"role": "assistant", "content": content or None}
    thoughts = [block.content for block in message.blocks if isinstance(block, ThinkingBlock) and block.content]
    if thoughts:
        found["reasoning_content"] = "\n\n".join(thoughts)
    if calls := _llama_calls(message):
        found["tool_calls"] = calls
    return [found] if content or len(found) > 2 else []


def _llama_calls(message: ChatMessage) -> list[dict[str, Any]]:
    """The calls of a message: its blocks, or the place where older classes keep them."""
    blocks = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    if blocks:
        functions = [{"name": one.tool_name, "arguments": _given(one)} for one in blocks]
        ids = [one.tool_call_id or "" for one in blocks]
        return [{"id": n, "type": "function", "function": f} for n, f in zip(ids, functions, strict=True)]
    beside = json.loads(json.dumps(message.additional_kwargs.get("tool_calls") or [], default=dict))
    return [call for call in beside if isinstance(call, dict) and call.get("id") and "function" in call]


def _given(call: ToolCallBlock) -> str:
    return call.tool_kwargs if isinstance(call.tool_kwargs, str) else as_json(call.tool_kwargs)


def _llama_content(message: ChatMessage) -> Any:
    parts = [part for block in message.blocks if (part := _llama_chat_part(block)) is not None]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _llama_chat_part(block: object) -> dict[str, Any] | None:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text} if block.text else None
        case ImageBlock():
            data = block.image.decode() if block.image else ""
            url = str(block.url) if block.url else f"data:{block.image_mimetype or 'image/png'};base64,{data}"
            return {"type": "image_url", "image_url": {"url": url}}
        case ThinkingBlock() | ToolCallBlock():
            return None
    return {"type": "text", "text": f"[{getattr(block, 'title', None) or getattr(block, 'block_type', 'a file')}]"}
