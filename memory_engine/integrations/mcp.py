"""This memory as a server of the Model Context Protocol: its tools for agents, a context, explanations, resources.

`memory-engine mcp` serves it to a client on standard input and output, or over HTTP (`mcp_http`). In a program of your
own, `create_server` returns the SDK's server over your engine. Needs the extra `mcp`.
"""

import gc
import importlib
import json
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, unquote

from attrs import frozen
from msgspec import Meta

from memory_engine.agents.arguments import ARGUMENTS, Arguments
from memory_engine.agents.tools import ENTRY_CHARS_MAX, MemoryTools, parameters, read_arguments
from memory_engine.context.budget import ContextPolicy
from memory_engine.context.ownership import Viewer
from memory_engine.context.thread_context import thread_context
from memory_engine.core.aside import modules_spared
from memory_engine.core.json_form import as_data
from memory_engine.core.threads import ThreadInfo
from memory_engine.core.version import installed_version
from memory_engine.engine import Engine
from memory_engine.errors import MemoryEngineError, MissingExtra, ThreadDiffers, UnknownMemory
from memory_engine.integrations.owned import OwnedThreads
from memory_engine.scopes import Agent
from memory_engine.thread import Thread, handle_of
from memory_engine.views.layers.entries import RECALLED_MARK
from memory_engine.views.layers.fold import EPISODIC, LAYERS, EntryRow
from memory_engine.views.layers.summaries import shortened
from memory_engine.views.layers.viewers import rows_for
from memory_engine.views.memory_files.fold import MEMORY_FILES

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server import Server

    from memory_engine.replay.explanation import Why

THREADS_MAX = 50
"""How many of the latest conversations are listed, and searched for a context."""
CONTEXT_TOKENS = 4_000
WHY_LINES_MAX = 80
INSTRUCTIONS = (
    "A memory that outlives conversations. Before you begin a task, ask memory_context what is known about it. Keep "
    "what will be useful later with memory_learn (facts) and memory_append (what was done, rules). memory_why says "
    "where an entry comes from."
)
_READING = frozenset({"memory_search", "memory_recall", "memory_stats", "memory_open", "scratchpad_read", "brief_read"})
_DESTRUCTIVE = frozenset({"memory_clear", "memory_compact"})
_IDEMPOTENT = frozenset({"memory_learn", "memory_clear"})


@frozen(kw_only=True)
class Served:
    """Whose memory a server serves: an agent's, with the conversations of a user, or of the agent, in one tenant.

    Nothing of another user or tenant is seen or changed; without a `user_id`, nothing of any user, and without a
    `tenant_id`, nothing of any tenant. `read_only` leaves out
    the tools that write: no event is recorded. (A search may write its index: open the engine for writing.)
    With a user, the tools that clear and compact layers change that user's memory; with `changes_shared` the agent's.
    With `min_trust`, such as `"agent"`, nothing of a lower origin is found, opened or recalled.
    """

    agent_id: str = "mcp"
    user_id: str = ""
    tenant_id: str = ""
    read_only: bool = False
    changes_shared: bool = False
    min_trust: str | None = None


class ContextOf(Arguments, frozen=True):
    """The context to read before a task."""

    tool = "memory_context"
    purpose = (
        "What is known that matters for a question or a task: preferences, house rules, facts, the scratchpad, and "
        "passages of earlier conversations, within max_tokens."
    )
    query: Annotated[str, Meta(min_length=1, max_length=8_000, description="The question or task, in words.")]
    max_tokens: Annotated[
        Annotated[int, Meta(ge=100, le=200_000)] | None, Meta(description="The most tokens to return. Default 4000.")
    ] = None


class WhyOf(Arguments, frozen=True):
    """Where an entry comes from."""

    tool = "memory_why"
    purpose = "Explain where an entry of memory comes from: the events behind it, with times and texts."
    id: Annotated[
        str,
        Meta(min_length=1, max_length=1_000, description="An id from memory_search, a chunk's id, or a fact's key."),
    ]


_OWN: tuple[type[Arguments], ...] = (ContextOf, WhyOf)
_TEXT: dict[str, object] = {"type": "string", "description": "The answer in words."}
_ENTRY = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "layer": {"type": ["string", "null"]},
        "key": {"type": "string"},
        "condition": {"type": "string"},
        "content": {"type": "string"},
        "timestamp": {"type": ["string", "null"]},
        "score": {"type": "number"},
    },
    "required": ["id", "content"],
}
_STATEMENT = {
    "type": "object",
    "properties": {
        "seq": {"type": "integer"},
        "text": {"type": "string"},
        "speaker": {"type": "string"},
        "kind": {"type": "string"},
        "status": {"type": "string"},
        "origin": {"type": "string"},
        "pinned": {"type": "boolean"},
    },
    "required": ["seq", "text"],
}
_DATA: Mapping[str, Mapping[str, object]] = {
    "brief_pin": {"pin": {"type": "integer", "description": "The pin's number."}},
    "brief_read": {"statements": {"type": "array", "items": _STATEMENT}},
    "memory_append": {"id": {"type": "string", "description": "The new entry's id."}},
    "memory_search": {"entries": {"type": "array", "items": _ENTRY}},
    "memory_recall": {"key": {"type": "string"}, "value": {"type": "string"}},
    "memory_context": {
        "tokens": {"type": "integer", "description": "The text's tokens, estimated."},
        "threads": {"type": "array", "items": {"type": "string"}, "description": "Conversations that were recalled."},
    },
    "context_compact": {
        "is_done": {"type": "boolean", "description": "Whether it has ended; else it goes on in the background."},
        "tokens_before": {"type": "integer"},
        "tokens_after": {"type": "integer"},
    },
    "memory_why": {"tree": {"type": "object", "description": "The explanation, down to the events."}},
}
"""The fields of each tool's structured answer, besides `text`."""


def _load_sdk() -> None:
    """Import the SDK. Raises `MissingExtra`.

    It takes most of a second; a third less without garbage collection, since modules do not become garbage.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        for name in ("mcp.server.lowlevel", "mcp.server.stdio"):
            importlib.import_module(name)
    except ImportError as error:
        raise MissingExtra("the MCP server", "mcp") from error
    finally:
        if collecting:
            gc.enable()


async def serve_stdio(engine: Engine, served: Served) -> None:
    """Serve one client on standard input and output until it closes them.

    While it runs, whatever else is printed goes to standard error. Raises `MissingExtra`.
    """
    server = await create_server(engine, served)
    from mcp.server.stdio import stdio_server

    # A thread waits for the client's next line, and only the client ends that: a signal ends the process, as it
    # may at any time. What was acknowledged is durable.
    with suppress(ValueError):  # in another thread than the main one, signals are not ours
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    async with stdio_server() as (reading, writing):
        with modules_spared():
            await server.run(reading, writing, server.create_initialization_options())


async def create_server(engine: Engine, served: Served) -> "Server[Any]":
    """The SDK's server over an engine: `run` it on streams, or give it to an HTTP server. Raises `MissingExtra`."""
    _load_sdk()
    from mcp.server import Server

    memory = await _Answers.of(engine, served)
    return Server(
        "memory-engine",
        version=installed_version(),
        instructions=INSTRUCTIONS,
        on_list_tools=memory.list_tools,
        on_call_tool=memory.call_tool,
        on_list_resources=memory.list_resources,
        on_list_resource_templates=memory.list_templates,
        on_read_resource=memory.read_resource,
    )


class _Answers:
    """The server's answers."""

    def __init__(self, engine: Engine, served: Served, agent: Agent, conversation: Thread, viewer: Viewer) -> None:
        self._engine = engine
        self._served = served
        self._agent = agent
        self._conversation = conversation
        self._viewer = viewer
        self._threads = OwnedThreads(
            engine=engine,
            user_id=served.user_id,
            tenant_id=served.tenant_id,
            agent_id="" if served.user_id else served.agent_id,
        )
        self._tools = MemoryTools(
            agent, conversation, viewer=viewer, changes_shared=served.changes_shared, min_trust=served.min_trust
        )
        self._own: Mapping[type[Arguments], Callable[[Any], Awaitable[tuple[str, dict[str, object]]]]] = {
            ContextOf: self._context,
            WhyOf: self._why,
        }

    @classmethod
    async def of(cls, engine: Engine, served: Served) -> "_Answers":
        """With the conversation that holds the scratchpad; without, if it does not exist and nothing may be written."""
        agent = engine.agent(served.agent_id, tenant_id=served.tenant_id)
        parts = (served.tenant_id, served.user_id, served.agent_id)
        thread_id = "mcp:" + "/".join(quote(part, safe="") for part in parts)
        owned = OwnedThreads(
            engine=engine, user_id=served.user_id, tenant_id=served.tenant_id, agent_id=served.agent_id
        )
        conversation = await (owned.find if served.read_only else owned.open)(thread_id)
        return cls(engine, served, agent, conversation or agent, Viewer(served.user_id, thread_id))

    # tools

    @property
    def _classes(self) -> list[type[Arguments]]:
        offered = [cls for cls in ARGUMENTS if not self._served.read_only or cls.tool in _READING]
        return [*offered, *_OWN]

    async def list_tools(self, _context: object, _params: object) -> "types.ListToolsResult":
        """The tools, with hints on what they do and the schemas of what they take and give."""
        import mcp_types as types

        return types.ListToolsResult(tools=[_tool(cls) for cls in self._classes])

    async def call_tool(self, _context: object, params: "types.CallToolRequestParams") -> "types.CallToolResult":
        """Do one call. The model's mistakes, and what the store refuses, become errors for the model to read."""
        import mcp_types as types

        try:
            text, data, is_error = await self._call(params.name, params.arguments or {})
        except MemoryEngineError as error:
            text, data, is_error = str(error), {}, True
        content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
        structured = None if is_error else {"text": text, **data}
        return types.CallToolResult(content=content, structured_content=structured, is_error=is_error)

    async def _call(self, name: str, arguments: Mapping[str, object]) -> tuple[str, dict[str, object], bool]:
        classes = {cls.tool: cls for cls in self._classes}
        if name not in classes:
            why = " It would write, and this server only reads." if name in {cls.tool for cls in ARGUMENTS} else ""
            return f"There is no tool {name!r}.{why} There are: {', '.join(classes)}.", {}, True
        cls = classes[name]
        if cls in self._own:
            asked = read_arguments(cls, arguments)
            if isinstance(asked, str):
                return asked, {}, True
            return (*await self._own[cls](asked), False)
        answer = await self._tools.call(name, arguments)
        data = {field: as_data(value) for field, value in answer.data.items()}
        return answer.text, data, answer.is_error

    async def _context(self, asked: ContextOf) -> tuple[str, dict[str, object]]:
        """The context of a conversation about the question, in which nothing was said yet."""
        others = await self._conversations()
        if self._conversation is self._agent:
            ids, least = [info.id for info in others], self._served.min_trust
            hits = await self._engine.search(asked.query, thread_ids=ids, min_trust=least) if others else ()
            lines = [f"- ({hit.at:%Y-%m-%d}) {shortened(hit.text, ENTRY_CHARS_MAX)}" for hit in hits]
            text = "\n".join([RECALLED_MARK, *lines]) if lines else "Nothing is known about that yet."
            return text, {"threads": sorted({hit.thread_id for hit in hits})}
        found = [await self._threads.find(info.id) for info in others if info.id != self._conversation.id]
        sources = [thread for thread in found if thread is not None]
        scopes = [self._agent, *([self._user()] if self._served.user_id else ())]
        sources += [scope for scope in scopes if await scope.exists()]
        recalled_from = [handle_of(one) for one in sources]
        budget = asked.max_tokens or CONTEXT_TOKENS
        context = await thread_context(  # what a client looks up is not what the conversation's own loop is shown
            handle_of(self._conversation),
            budget,
            query=asked.query,
            policy=ContextPolicy(min_trust=self._served.min_trust),
            recall_from=recalled_from,
            is_loop=False,
        )
        text = "\n\n".join(filter(None, (_mcp_message_text(message) for message in context.messages)))
        recalled = sorted({hit.thread_id for hit in context.recalled})
        return text or "Nothing is known about that yet.", {"tokens": context.tokens, "threads": recalled}

    async def _why(self, asked: WhyOf) -> tuple[str, dict[str, object]]:
        """Of an entry of a layer, a memory file, a chunk of the conversation, or a row of a view."""
        row = await self._row_of(asked.id)
        is_of_layers = asked.id.startswith((f"view:{LAYERS.name}/", f"view:{EPISODIC.name}/"))
        if row is not None:
            why = await self._agent.replay.why(row)
        elif asked.id.startswith("view:") and not is_of_layers and await self._agent.exists():
            why = await self._agent.replay.why(asked.id)
        elif asked.id.partition(".")[0].isdecimal():
            why = await self._conversation.replay.why(asked.id)
        else:
            raise UnknownMemory(self._agent.id, asked.id)
        return "\n".join(_tree(why)), {"tree": as_data(why)}

    async def _row_of(self, entry_id: str) -> str | None:
        """The row of an entry that may be shown here, whole, or of a file."""
        for projection in (LAYERS, EPISODIC):
            view = await self._agent.views.read(projection.name)
            rows = {f"view:{projection.name}/{key}": row for key, row in view.items() if isinstance(row, EntryRow)}
            shown = await rows_for(handle_of(self._agent), rows.values(), self._viewer)
            for name, row in rows.items():
                if entry_id in (name, row.id, row.event_id, row.key) and row in shown:
                    return name
        file_key = f"file/{entry_id}"
        files = await self._agent.views.rows(MEMORY_FILES)
        return f"view:{MEMORY_FILES.name}/{file_key}" if files.get(file_key) is not None else None

    # resources

    async def list_resources(self, _context: object, _params: object) -> "types.ListResourcesResult":
        """The readable resources: house rules, preferences, conversations, memory files."""
        import mcp_types as types

        fixed = [("threads", "Conversations, as JSON", "application/json")]
        if self._served.tenant_id:
            fixed.append(("agent.md", "The house rules of the tenant", "text/markdown"))
        if self._served.user_id:
            fixed.append(("preferences", "The preferences of the user, as JSON", "application/json"))
        listed = [
            types.Resource(uri=f"memory://{name}", name=name, description=what, mime_type=kind)
            for name, what, kind in fixed
        ]
        for file in await self._agent.memory_files.list():
            uri = f"memory://files/{quote(file.path)}"
            listed.append(types.Resource(uri=uri, name=file.path, description="A memory file", mime_type="text/plain"))
        return types.ListResourcesResult(resources=listed)

    async def list_templates(self, _context: object, _params: object) -> "types.ListResourceTemplatesResult":
        """The resource templates."""
        import mcp_types as types

        named = [
            ("memory://threads/{id}/context", "context", "What a model sees of a conversation"),
            ("memory://files/{+path}", "file", "A memory file of the agent"),
        ]
        templates = [types.ResourceTemplate(uri_template=uri, name=name, description=what) for uri, name, what in named]
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def read_resource(
        self, _context: object, params: "types.ReadResourceRequestParams"
    ) -> "types.ReadResourceResult":
        """Read one. An unknown address is the protocol's error, and so is another tenant's: it reveals nothing."""
        import mcp_types as types
        from mcp.shared.exceptions import MCPError

        try:
            found = await self._resource(params.uri)
        except MemoryEngineError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no resource {params.uri}", {"uri": params.uri})
        text, kind = found
        contents = types.TextResourceContents(uri=params.uri, text=text, mime_type=kind)
        return types.ReadResourceResult(contents=[contents])

    async def _resource(self, uri: str) -> tuple[str, str] | None:
        scheme, _, path = uri.partition("://")
        match (scheme, path.split("/")):
            case ("memory", ["agent.md"]) if self._served.tenant_id:
                return await self._engine.tenant(self._served.tenant_id).agent_md.read(), "text/markdown"
            case ("memory", ["preferences"]) if self._served.user_id:
                every = await self._user().preferences.all()
                return _json({key: one.value for key, one in every.items()}), "application/json"
            case ("memory", ["threads"]):
                names = ("id", "events", "created_at")
                infos = [{name: as_data(getattr(info, name)) for name in names} for info in await self._conversations()]
                return _json(infos), "application/json"
            case ("memory", ["threads", thread_id, "context"]):
                thread_id = unquote(thread_id)
                thread = await self._conversation_of(thread_id)
                if thread is None:
                    return None
                context = await thread.context()
                return "\n\n".join(filter(None, map(_mcp_message_text, context.messages))), "text/plain"
            case ("memory", ["files", *parts]):
                file = await self._agent.memory_files.get(unquote("/".join(parts)))
                return None if file is None else (file.content, "text/plain")
        return None

    async def _conversations(self) -> "Sequence[ThreadInfo]":
        """The latest of the user, or of the agent where no user is named, in exactly this tenant; no what-ifs."""
        return [info for info in await self._threads.list(limit=THREADS_MAX) if not info.is_what_if]

    async def _conversation_of(self, thread_id: str) -> Thread | None:
        """The one with this id; `None` also for another's: that it exists must not show."""
        try:
            thread = await self._threads.find(thread_id)
        except ThreadDiffers:
            return None
        return None if thread is None or (await thread.info()).is_what_if else thread

    def _user(self) -> Any:
        return self._engine.user(self._served.user_id, tenant_id=self._served.tenant_id)


def _tool(cls: type[Arguments]) -> "types.Tool":
    import mcp_types as types

    is_reading = cls.tool in _READING or cls in _OWN
    return types.Tool(
        name=cls.tool,
        description=cls.purpose,
        input_schema=parameters(cls, strict=False),
        output_schema={
            "type": "object",
            "properties": {"text": _TEXT, **_DATA.get(cls.tool, {})},
            "required": ["text"],
        },
        annotations=types.ToolAnnotations(
            title=(cls.__doc__ or "").rstrip("."),
            read_only_hint=is_reading,
            destructive_hint=cls.tool in _DESTRUCTIVE,
            idempotent_hint=is_reading or cls.tool in _IDEMPOTENT,
            open_world_hint=False,
        ),
    )


def _mcp_message_text(message: Mapping[str, object]) -> str:
    """A message's text."""
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return str(content or "")


def _tree(why: "Why") -> list[str]:
    """The explanation as indented lines, up to a maximum."""
    lines: list[str] = []
    waiting = [(why, 0)]
    while waiting:
        node, level = waiting.pop()
        at = str(node.facts.get("at", ""))[:16]
        said = f": {shortened(node.text, 300)}" if node.text else ""
        lines.append(f"{'  ' * level}- {node.title}{f' ({at})' if at else ''}{said}")
        waiting += [(child, level + 1) for child in reversed(node.children)]
    more = [f"… and {len(lines) - WHY_LINES_MAX} more"] if len(lines) > WHY_LINES_MAX else []
    return lines[:WHY_LINES_MAX] + more


def _json(value: object) -> str:
    return json.dumps(as_data(value), ensure_ascii=False, indent=1)
