"""Histories of Microsoft's Agent Framework in this memory: each message unchanged, and as events of a thread.

    from memory_engine.integrations.agent_framework import MemoryEngineHistoryProvider

    async with memory_engine.open("agent.db") as engine:
        agent = Agent(client, context_providers=[MemoryEngineHistoryProvider(engine)])
        await agent.run("Hello", session=agent.create_session(session_id="chat"))

Needs the extra `agent-framework`. A session is the engine's thread of the same id, so that contexts, search, compaction
and the inspector work on it.
"""

# pyright: reportMissingImports=false
# agent-framework-core is in the environment of its tests alone

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal

from memory_engine.core.events.base import Event
from memory_engine.core.events.messages import LlmTextResponse, UserMessage
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import InvalidArgument, MissingExtra, ThreadNotFound
from memory_engine.integrations.entries import EntryList, Json, OwnMessage, loaded
from memory_engine.integrations.home import HomeLoop
from memory_engine.integrations.owned import OwnedThreads
from memory_engine.integrations.recalled import RECALL_TOKENS, recall_tokens_of, recalled
from memory_engine.views.records import as_json

try:
    from agent_framework import (
        AgentSession,
        Content,
        ContextProvider,
        HistoryProvider,
        Message,
        SessionContext,
        SupportsAgentRun,
    )
except ImportError:
    raise MissingExtra("histories of Agent Framework", "agent-framework") from None

MARK = "agent-framework"
"""The key in the metadata of threads that are made here."""
DEFAULT = "default"
"""The session of runs that name none, as with the framework's own providers."""


class MemoryEngineHistoryProvider(HistoryProvider):
    """A `HistoryProvider` in an engine's threads. Make it on the loop that the engine was opened on; await it on any.

    `history` is what a run begins with: `"all"` messages, or the thread's `"context"` within `max_tokens`,
    with what was compacted and what is known of the user. With `recall`, a message between history and input says what
    the user's other conversations hold on the input, in at most `recall_tokens` tokens; it is not stored. The first
    message makes the thread, with these scopes; methods raise `ThreadDiffers` for the thread of another user or tenant.
    """

    def __init__(  # noqa: PLR0913 - those of the base class, and scopes
        self,
        engine: Engine,
        source_id: str = "memory_engine",
        *,
        history: Literal["all", "context"] = "all",
        max_tokens: int | None = None,
        user_id: str = "",
        tenant_id: str = "",
        agent_id: str = "",
        recall: bool = False,
        recall_tokens: int = RECALL_TOKENS,
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
    ) -> None:
        if history not in ("all", "context"):
            raise InvalidArgument("history", history, 'give "all" or "context"')
        super().__init__(
            source_id,
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )
        self.engine = engine
        self._history = history
        self._max_tokens = max_tokens
        self._threads = OwnedThreads(
            engine=engine,
            user_id=user_id,
            tenant_id=tenant_id,
            agent_id=agent_id,
            metadata={MARK: "conversation"},
        )
        self._recall_tokens = recall_tokens_of(recall, recall_tokens)
        self._home = HomeLoop()

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Load the history into a run's context, then what is recalled for its input."""
        await super().before_run(agent=agent, session=session, context=context, state=state)
        await self._home.run(_recall(self, self._threads, context, self._recall_tokens))

    async def get_messages(self, session_id: str | None, *, state: dict[str, Any] | None = None) -> list[Message]:
        """The history, oldest first."""
        entries = EntryList(self._threads, session_id or DEFAULT)
        if self._history == "context":
            return await self._home.run(self._context(entries))
        return [Message.from_dict(one) for one in await self._home.run(entries.get())]

    async def save_messages(
        self, session_id: str | None, messages: Sequence[Message], *, state: dict[str, Any] | None = None
    ) -> None:
        """Store those that the history does not end with, all or none, each as messages of the thread."""
        entries = EntryList(self._threads, session_id or DEFAULT)
        given = [loaded(message.to_json()) for message in messages]
        kept = [_framework_entry(one, message, self.engine) for one, message in zip(given, messages, strict=True)]

        def new(there: Sequence[Json]) -> tuple[Sequence[int], Sequence[OwnMessage]]:
            return (), kept[_repeated([_message_key(one) for one in there], [_message_key(one) for one in given]) :]

        if kept:
            await self._home.run(entries.change(new, limit=len(kept) + 1))

    async def _context(self, entries: EntryList) -> list[Message]:
        thread = await entries.thread()
        if thread is not None:
            with suppress(ThreadNotFound):
                return _from_openai((await thread.context(self._max_tokens)).messages)
        return []


class MemoryEngineRecallProvider(ContextProvider):
    """A `ContextProvider` that recalls alone: for runs whose history another provider loads, or the model's service.

    A message before the input says what the user's conversations in this memory hold on it, in at most `recall_tokens`
    tokens; it is not stored, and nothing else is. To have them stored too, add a `MemoryEngineHistoryProvider` with
    `load_messages=False` and the same scopes. Make it on the loop that the engine was opened on; await it on any.
    """

    def __init__(  # noqa: PLR0913 - scopes are keywords of the public face
        self,
        engine: Engine,
        source_id: str = "memory_engine_recall",
        *,
        user_id: str = "",
        tenant_id: str = "",
        agent_id: str = "",
        recall_tokens: int = RECALL_TOKENS,
    ) -> None:
        super().__init__(source_id)
        self._recall_tokens = recall_tokens_of(True, recall_tokens)
        self._threads = OwnedThreads(engine=engine, user_id=user_id, tenant_id=tenant_id, agent_id=agent_id)
        self._home = HomeLoop()

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Put what is recalled for a run's input into its context. Raises `ThreadDiffers`."""
        await self._home.run(_recall(self, self._threads, context, self._recall_tokens))


async def _recall(provider: ContextProvider, threads: OwnedThreads, context: SessionContext, max_tokens: int) -> None:
    asked = context.input_messages
    if not max_tokens or not asked or str(asked[0].role) != "user":
        return  # an input that answers calls of the history stays directly behind them
    query = "\n".join(message.text for message in asked if str(message.role) == "user" and message.text)
    given = [one for message in context.get_messages(include_input=True) for one in _openai(message)]
    beside = [str(one["content"]) for one in given if one["content"]]
    text = await recalled(threads, context.session_id or DEFAULT, query, max_tokens=max_tokens, beside=beside)
    if text:
        context.extend_messages(provider, [Message("user", [text])])


def _message_key(message: Json) -> tuple[str, str]:
    """The identity of a message: its id, or all of its content."""
    name = message.get("message_id")
    return ("id", str(name)) if name else ("said", json.dumps(message, sort_keys=True))


def _repeated(there: Sequence[tuple[str, str]], given: Sequence[tuple[str, str]]) -> int:
    """How many of the given messages, from the first on, repeat the end of the stored ones.

    A single user message without an id is new, even if it repeats the last one.
    """
    for count in range(min(len(there), len(given)), 0, -1):
        if list(there[-count:]) == list(given[:count]):
            is_said_again = count == 1 and there[-1][0] == "said" and '"role": "user"' in there[-1][1]
            return 0 if is_said_again else count
    return 0


def _framework_entry(entry: Json, message: Message, engine: Engine) -> OwnMessage:
    messages = _openai(message)
    texts = [str(text) for one in messages for text in (one.get("content"), *_call_texts(one)) if text]
    said = _text_event(str(message.role), "\n".join(texts)) if texts else None
    name = kernel_of(engine).new_id()
    return OwnMessage(id=name, entry=entry, messages=messages, texts=_framework_texts(entry), said=said, name=name)


def _text_event(role: str, text: str) -> Event:
    if role == "assistant":
        return LlmTextResponse(content=text)
    return UserMessage(content=text, origin="" if role == "user" else "tool" if role == "tool" else "client")


def _call_texts(message: Json) -> Iterable[str]:
    calls: Any = message.get("tool_calls") or ()
    return (f"{call['function']['name']}({call['function']['arguments']})" for call in calls)


def _framework_texts(entry: Json) -> dict[str, str]:
    contents: Any = entry.get("contents") or ()
    found: dict[str, str] = {}
    for n, content in enumerate(contents):
        for key in ("text", "result"):
            if isinstance(content.get(key), str) and content[key]:
                found[f"contents/{n}/{key}"] = content[key]
        for k, item in enumerate(content.get("items") or ()):
            if isinstance(item, dict) and item.get("text"):
                found[f"contents/{n}/items/{k}/text"] = item["text"]
    return found


def _openai(message: Message) -> list[dict[str, Any]]:
    """A message as chat completions' messages: results first, then the other texts."""
    results = [
        {"role": "tool", "tool_call_id": one.call_id or "", "content": _function_result_text(one)}
        for one in message.contents
        if one.type == "function_result"
    ]
    calls = [
        {"id": one.call_id, "type": "function", "function": {"name": one.name, "arguments": _arguments(one)}}
        for one in message.contents
        if one.type == "function_call" and not one.informational_only
    ]
    parts = [part for one in message.contents if (part := _framework_chat_part(one)) is not None]
    thoughts = "\n\n".join(one.text for one in message.contents if one.type == "text_reasoning" and one.text)
    role = {"developer": "system", "tool": "user"}.get(str(message.role), str(message.role))
    is_text = all(part["type"] == "text" for part in parts)
    content: Any = "".join(part["text"] for part in parts) if is_text else parts
    found: dict[str, Any] = {"role": role, "content": content or None}
    if calls and role == "assistant":
        found["tool_calls"] = calls
    if thoughts and role == "assistant":
        found["reasoning_content"] = thoughts
    if content and message.role == "tool":
        found["isMeta"] = True  # with results, in the user's role: no person wrote it
    return [*results, found] if content or len(found) > 2 else results


def _arguments(call: Content) -> str:
    given = call.arguments
    return given if isinstance(given, str) and given else as_json(dict(given) if given else {})


def _function_result_text(content: Content) -> str:
    said = content.result
    if said is None:
        said = "\n".join(item.text for item in content.items or () if item.text)
    return said if isinstance(said, str) else as_json(json.loads(json.dumps(said, default=str)))


def _framework_chat_part(content: Content) -> dict[str, Any] | None:
    match content.type:
        case "text" if content.text:
            return {"type": "text", "text": content.text}
        case "data" | "uri" if (content.media_type or "").startswith("image/"):
            return {"type": "image_url", "image_url": {"url": content.uri}}
        case "data" | "uri" | "hosted_file":
            return {"type": "text", "text": f"[{content.file_id or content.media_type or 'a file'}]"}
        case "error" if content.message:
            return {"type": "text", "text": content.message}
    return None


def _from_openai(messages: Iterable[Json]) -> list[Message]:
    """A context's messages, as the framework's."""
    return [_framework_message(dict(message)) for message in messages]


def _framework_message(message: dict[str, Any]) -> Message:
    content = message.get("content") or ""
    if message["role"] == "tool":
        return Message("tool", [Content.from_function_result(message["tool_call_id"], result=_text_or_json(content))])
    contents = [Content.from_text(content)] if isinstance(content, str) and content else []
    if not isinstance(content, str):
        contents = [_framework_content(part) for part in content]
    for call in message.get("tool_calls") or ():
        function = call["function"]
        contents.append(Content.from_function_call(call["id"], function["name"], arguments=function["arguments"]))
    return Message(message["role"], contents)


def _text_or_json(content: object) -> str:
    return content if isinstance(content, str) else as_json(content)


def _framework_content(part: dict[str, Any]) -> Content:
    match part:
        case {"type": "image_url", "image_url": {"url": str() as url}}:
            media = url.removeprefix("data:").partition(";")[0] if url.startswith("data:") else "image/*"
            return Content.from_uri(url, media_type=media)
    return Content.from_text(str(part.get("text", "")))
