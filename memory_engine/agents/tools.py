"""An agent's memory as tools: their JSON schemas, their arguments, and the answers in words.

A model's mistake gives an answer that explains it, never an exception.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypeVar, cast

import msgspec
from attrs import field, frozen

from memory_engine.agents.arguments import (
    ARGUMENTS,
    Append,
    Arguments,
    BriefPin,
    BriefRead,
    BriefUnpin,
    Clear,
    Compact,
    CompactContext,
    Learn,
    Open,
    RecallFact,
    ScratchpadRead,
    ScratchpadWrite,
    Search,
    Stats,
)
from memory_engine.agents.compacting import compacted_soon
from memory_engine.agents.pins import AgentPins
from memory_engine.agents.remembering import Remembering
from memory_engine.compaction.protocol import CompactionReport
from memory_engine.context.ownership import Viewer
from memory_engine.core.arguments import checked_flag
from memory_engine.core.ids import check_identifier
from memory_engine.core.json_form import named
from memory_engine.core.origins import checked_trust
from memory_engine.errors import (
    CompactorFailed,
    InvalidArgument,
    InvalidInput,
    NotGranted,
    NothingToCompact,
    UnknownChunk,
    UnknownMemory,
)
from memory_engine.events import Layer
from memory_engine.language.secrets import holds_secret, tells_secret
from memory_engine.thread import Thread
from memory_engine.views.layers.entries import RECALLED_MARK, MemoryEntry, MemoryHit
from memory_engine.views.layers.summaries import shortened
from memory_engine.views.layers.view import Memory

A = TypeVar("A", bound=Arguments)

ToolFormat = Literal["openai", "anthropic"]

_KEPT = ("type", "enum", "minimum", "maximum", "minLength", "maxLength", "description")


def memory_tools(format: ToolFormat = "openai") -> list[dict[str, object]]:
    """The definitions of all tools, to pass to a model with each call.

    `"openai"`: chat-completions (which litellm takes for any provider), in strict mode: every field is required, and an
    optional one may be null. `"anthropic"`: such fields are optional. Else raises `ValueError`.
    """
    if format == "openai":
        return [
            {
                "type": "function",
                "function": {
                    "name": cls.tool,
                    "description": cls.purpose,
                    "strict": True,
                    "parameters": parameters(cls, strict=True),
                },
            }
            for cls in ARGUMENTS
        ]
    if format == "anthropic":
        return [
            {"name": cls.tool, "description": cls.purpose, "input_schema": parameters(cls, strict=False)}
            for cls in ARGUMENTS
        ]
    raise ValueError(f'a format is "openai" or "anthropic", not {format!r}')


def parameters(cls: type[Arguments], *, strict: bool) -> dict[str, object]:
    """The schema of one tool's arguments: an object without references that allows no other fields."""
    _, components = msgspec.json.schema_components([cls])
    whole = cast("Mapping[str, object]", components[cls.__name__])
    fields = cast("Mapping[str, Mapping[str, object]]", whole.get("properties", {}))
    required = set(cast("list[str]", whole.get("required", [])))
    return {
        "type": "object",
        "properties": {
            name: _field(field, is_optional=name not in required, strict=strict) for name, field in fields.items()
        },
        "required": list(fields) if strict else [name for name in fields if name in required],
        "additionalProperties": False,
    }


def _field(field: Mapping[str, object], *, is_optional: bool, strict: bool) -> dict[str, object]:
    """One field; strict mode does not take bounds, so the description says them."""
    choices = cast("list[Mapping[str, object]]", field.get("anyOf", [field]))
    chosen = dict(next(choice for choice in choices if choice.get("type") != "null"))
    chosen |= {"description": field.get("description", chosen.get("description", ""))}
    if "enum" in chosen:
        chosen["type"] = "string"
    made = {name: chosen[name] for name in _KEPT if name in chosen}
    if not strict:
        return made
    least, most = made.pop("minimum", None), made.pop("maximum", None)
    made.pop("minLength", None)
    made.pop("maxLength", None)
    if least is not None:
        made["description"] = (
            f"{made['description']} At least {least}{f', at most {most}' if most is not None else ''}."
        )
    if is_optional:
        made["type"] = [made["type"], "null"]
        if "enum" in made:
            made["enum"] = [*cast("list[object]", made["enum"]), None]
    return made


ANSWER_CHARS_MAX = 12_000
TRUST_REACH = 8
"""Entries that are ranked for each one to be shown, where those of a low origin are left out."""
SECRET = "That tells a secret (a password, a key, a code, a card or account number). Nothing was kept: say it without."
ENTRY_CHARS_MAX = 1_200
OPEN_CHARS = 4_000

_CLASSES: Mapping[str, type[Arguments]] = {cls.tool: cls for cls in ARGUMENTS}


@frozen
class ToolAnswer:
    """The answer for the model. `is_error`: the call could not be done, and the text says what to do instead.

    `data` is for programs: the entries found (`entries`), an entry's `id`, and so on.
    """

    text: str
    is_error: bool = False
    data: Mapping[str, object] = field(factory=dict)

    @property
    def is_recalled(self) -> bool:
        """Whether it holds recalled memory, from which nothing is learned a second time."""
        return self.text.startswith(RECALLED_MARK)


@frozen
class _Told:
    """A text for the model with its data."""

    text: str
    data: Mapping[str, object]


class _Refused(Exception):
    """The call cannot be done; the message is for the model."""


class MemoryTools:
    """Runs a model's calls on a thread's memory. `scratchpad` is the conversation that the agent works in.

    Pass an agent (`engine.agent("a")`) as `memory` to let it remember across conversations: what people said in the
    conversation is then kept in their user's memory, and a model sees nothing that another user said. `viewer` says
    whom the memory is shown to, if not the conversation's user: there may be no conversation yet.

    For a user, `memory_clear` and `memory_compact` change that user's memory, and of the agent's, which other users
    share, its working notes only; with `changes_shared` they change all of the agent's memory. With `min_trust`, such
    as `"agent"`, entries of a lower origin are neither found nor opened, and answers say how many were left out.
    """

    def __init__(
        self,
        memory: Thread,
        scratchpad: Thread | None = None,
        *,
        viewer: Viewer | None = None,
        changes_shared: bool = False,
        min_trust: str | None = None,
    ) -> None:
        self._changes_shared = checked_flag("changes_shared", changes_shared)
        try:
            trust = checked_trust(min_trust)
        except ValueError as error:
            raise InvalidArgument("min_trust", min_trust, str(error)) from None
        self._memory = memory.memory
        self._thread = memory
        self._conversation = scratchpad or memory
        self._pins = AgentPins(self._conversation)
        self._remembering = Remembering(owner=memory, conversation=self._conversation, viewer=viewer, min_trust=trust)
        self._reach = 1 if trust is None else TRUST_REACH
        self._calls: Mapping[type[Arguments], Callable[..., Awaitable[str | _Told]]] = {
            Append: self._append,
            Search: self._search,
            Learn: self._learn,
            RecallFact: self._recall,
            Compact: self._compact,
            Stats: self._stats,
            Clear: self._clear,
            Open: self._open,
            ScratchpadWrite: self._write,
            ScratchpadRead: self._read,
            BriefPin: self._pin,
            BriefUnpin: self._unpin,
            BriefRead: self._brief,
            CompactContext: self._compact_context,
        }

    async def call(self, name: str, arguments: "str | bytes | Mapping[str, object]" = "{}") -> ToolAnswer:
        """Run one call; its arguments are the model's JSON text, or a mapping.

        Raises only errors that the model did not cause: a `StorageError`, a closed engine or thread.
        """
        cls = _CLASSES.get(name)
        if cls is None:
            return ToolAnswer(f"There is no tool {name!r}. There are: {', '.join(_CLASSES)}.", is_error=True)
        try:
            asked = _parse_arguments(cls, arguments)
            told = await self._calls[cls](asked)
        except _Refused as refused:
            return ToolAnswer(str(refused), is_error=True)
        except (InvalidInput, UnknownChunk, NotGranted) as error:
            return ToolAnswer(f"{name} was not done: {error}", is_error=True)
        text, data = (told.text, told.data) if isinstance(told, _Told) else (told, {})
        return ToolAnswer(text if len(text) <= ANSWER_CHARS_MAX else text[: ANSWER_CHARS_MAX - 1] + "…", data=data)

    async def _append(self, asked: Append) -> _Told:
        if asked.layer == "procedural" and not (asked.condition or "").strip():
            raise _Refused("A rule needs a condition: when does it apply? Call memory_append again with condition.")
        if asked.layer != "working" and holds_secret(asked.content):
            raise _Refused(SECRET)
        entry_id = await self._remembering.keep(asked.layer, asked.content, condition=asked.condition or "")
        return _Told(f"Remembered in {asked.layer} memory. id: {entry_id}", {"id": entry_id})

    async def _search(self, asked: Search) -> _Told:
        query = (asked.query or "").strip()
        if asked.last is not None and query:
            raise _Refused("Give either query or last, not both: a query finds what fits, last gives the latest.")
        if query:
            limit = asked.limit or 10
            found = await self._remembering.search(asked.layer, query, limit * self._reach)
            hits, untrusted = await self._remembering.trusted(found, limit)
        else:
            limit = asked.last or asked.limit or 10
            newest = (await self._remembering.latest(asked.layer, limit * self._reach))[::-1]
            latest, untrusted = await self._remembering.trusted(newest, limit)
            hits = latest[::-1]
        left_out = f"\n({untrusted} of a lower origin are not shown.)" if untrusted else ""
        data = {"untrusted": untrusted} if self._remembering.min_trust is not None else {}
        if not hits:
            where = f"{asked.layer} memory" if asked.layer else "memory"
            hint = " Try fewer or other words." if query else ""
            return _Told(f"Nothing was found in {where}.{hint}{left_out}", {"entries": [], **data})
        lines = [RECALLED_MARK, *(_entry_line(hit.entry) for hit in hits)]
        return _Told("\n".join(lines) + left_out, {"entries": list(map(_hit_data, hits)), **data})

    async def _learn(self, asked: Learn) -> str:
        if tells_secret(asked.key, asked.value):
            raise _Refused(SECRET)
        former = await self._remembering.recall(asked.key)
        check_identifier("key of an entry", asked.key)
        await self._remembering.keep("semantic", asked.value, key=asked.key)
        if former is None or former.value == asked.value:
            return f"Learned under {asked.key!r}."
        return f"Learned under {asked.key!r}. Until now it said: {shortened(former.value, 300)}"

    async def _recall(self, asked: RecallFact) -> _Told:
        known = await self._remembering.recall(asked.key)
        if known is not None and not await self._remembering.trusted_ids([known.event_id]):
            return _Told(f"What is kept under {asked.key!r} is of a lower origin, and is not shown.", {})
        if known is not None:
            return _Told(f"{RECALLED_MARK}\n{known.key}: {known.value}", {"key": known.key, "value": known.value})
        found = await self._remembering.search("semantic", asked.key, 3 * self._reach)
        alike, _ = await self._remembering.trusted(found, 3)
        hint = f" Similar keys: {', '.join(hit.entry.key for hit in alike)}." if alike else ""
        return _Told(f"Nothing is known under {asked.key!r}.{hint}", {})

    async def _compact(self, asked: Compact) -> str:
        keep_last = 10 if asked.keep_last is None else asked.keep_last
        own = await self._own(asked.layer)
        report = await (own or self._memory).compact(asked.layer, keep_last=keep_last)
        if report.note:
            return f"Nothing was compacted: {report.note}."
        if report.summary is None:
            return f"{report.covered} older entries went; the last {report.kept} stayed."
        return f"{report.covered} entries are now one summary (id: {report.summary.id}); the last {report.kept} stayed."

    async def _compact_context(self, asked: CompactContext) -> _Told:
        """Compact the conversation. A model may take long: after a while it goes on in the background."""
        done = await compacted_soon(self._conversation, focus=asked.focus or "")
        if isinstance(done, CompactionReport):
            data = {"is_done": True, "tokens_before": done.tokens_before, "tokens_after": done.tokens_after}
            covered, became = len(done.covered) + len(done.dropped), f"{done.tokens_before} → {done.tokens_after}"
            return _Told(f"{covered} older steps are now a summary: {became} tokens.", data)
        if isinstance(done, CompactorFailed):
            raise _Refused(f"Nothing was compacted; all steps are as they were: {done}")
        if isinstance(done, NothingToCompact):
            return _Told("There is nothing to compact now: everything is new, open, or short.", {"is_done": True})
        return _Told("The older steps are being summarised in the background. Go on.", {"is_done": False})

    async def _stats(self, _asked: Stats) -> _Told:
        stats = await self._memory.get_stats()
        text = (
            f"Working memory: about {stats.working_memory_tokens} tokens. "
            f"Episodic: {stats.episodic_entry_count} entries. Semantic: {stats.semantic_entry_count} facts. "
            f"Procedural: {stats.procedural_rule_count} rules."
        )
        return _Told(text, named(stats))

    async def _clear(self, asked: Clear) -> str:
        if not asked.confirm:
            raise _Refused(f"Nothing was cleared. To empty {asked.layer} memory, call memory_clear with confirm=true.")
        own = await self._own(asked.layer)
        await (own or self._memory).clear(asked.layer, reason="asked by the agent")
        if own is not None:
            return f"This user's {asked.layer} memory is empty now. What the agent shares with other users stays."
        return f"{asked.layer.capitalize()} memory is empty now."

    async def _own(self, layer: Layer) -> Memory | None:
        """The memory that a call may change in place of the agent's, which others share."""
        return None if self._changes_shared else await self._remembering.own(layer)

    async def _open(self, asked: Open) -> str:
        try:
            entries = await self._remembering.open(asked.reference.strip())
        except UnknownMemory:
            return await self._open_result(asked)
        kept = await self._remembering.trusted_ids([one.event_id for one in entries])
        shown = [one for one in entries if one.event_id in kept]
        if not shown:
            raise _Refused(f"{asked.reference!r} is of a lower origin, and is not shown.")
        return "\n".join([RECALLED_MARK, *map(_entry_line, shown)])

    async def _open_result(self, asked: Open) -> str:
        try:
            opened = await self._conversation.compaction.open(asked.reference, start=asked.start or 0, chars=OPEN_CHARS)
        except UnknownChunk:
            raise _Refused(
                f"There is nothing under {asked.reference!r}. Use an id from memory_search, or a reference such as "
                '"12.0" from a message.'
            ) from None
        more = f"\n[read on with start={opened.next_start}]" if opened.next_start is not None else ""
        place = f"characters {opened.start} to {opened.start + len(opened.text)} of {opened.total_chars}"
        return f"{RECALLED_MARK} {place}\n{opened.text}{more}"

    async def _write(self, asked: ScratchpadWrite) -> str:
        await self._conversation.scratchpad.write(asked.text)
        return "Noted on the scratchpad."

    async def _read(self, _asked: ScratchpadRead) -> str:
        snippets = await self._conversation.scratchpad.read()
        if not snippets:
            return "The scratchpad is empty."
        return "\n".join(
            f"- {RECALLED_MARK + ' ' if s.recalled else ''}{shortened(s.text, ENTRY_CHARS_MAX)}" for s in snippets
        )

    async def _pin(self, asked: BriefPin) -> _Told:
        pin = await self._pins.add(asked.text)
        return _Told(f"Pinned. number: {pin}", {"pin": pin})

    async def _unpin(self, asked: BriefUnpin) -> str:
        if not await self._pins.take_out(asked.pin):
            raise _Refused(f"Pin {asked.pin} is a person's: only people can take it out.")
        return f"Pin {asked.pin} is taken out."

    async def _brief(self, _asked: BriefRead) -> _Told:
        text, statements = await self._pins.read()
        return _Told(text, {"statements": statements})


def read_arguments(cls: type[A], arguments: "str | bytes | Mapping[str, object]") -> A | str:
    """The arguments of a tool, checked, or a text for the model that says what is wrong with them."""
    try:
        return _parse_arguments(cls, arguments)
    except _Refused as refused:
        return str(refused)


def _parse_arguments(cls: type[A], arguments: "str | bytes | Mapping[str, object]") -> A:
    """The arguments, checked. An argument that is null counts as left out. Raises `_Refused` in words for the model."""
    try:
        if isinstance(arguments, Mapping):
            given: object = dict(arguments)
        else:
            text = arguments.encode("utf-8", "replace") if isinstance(arguments, str) else arguments
            given = msgspec.json.decode(text.strip() or b"{}")
        if not isinstance(given, dict):
            raise _Refused(f"The arguments of {cls.tool} must be one JSON object. {_allowed(cls)}")
        return msgspec.convert({name: value for name, value in given.items() if value is not None}, cls)
    except msgspec.ValidationError as error:
        raise _Refused(f"Wrong arguments for {cls.tool}: {error}. {_allowed(cls)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _Refused(f"The arguments of {cls.tool} are not valid JSON: {error}. {_allowed(cls)}") from None


def _allowed(cls: type[Arguments]) -> str:
    """The arguments that the tool takes, in one sentence."""
    fields = msgspec.structs.fields(cls)
    if not fields:
        return f"{cls.tool} takes no arguments: {{}}."
    shown = []
    schema = parameters(cls, strict=False)["properties"]
    assert isinstance(schema, dict)
    for one in fields:
        kind = schema[one.name]
        choice = f": one of {', '.join(kind['enum'])}" if "enum" in kind else f": {kind['type']}"
        shown.append(f"{one.name} ({'required' if one.required else 'optional'}{choice})")
    return f"It takes {', '.join(shown)}."


def _hit_data(hit: MemoryHit) -> dict[str, object]:
    return {**named(hit.entry, "id layer key condition content timestamp"), "score": hit.score}


def _entry_line(entry: MemoryEntry) -> str:
    when = f" when {entry.condition}:" if entry.condition else ""
    key = f" {entry.key}:" if entry.key else ""
    day = f" {entry.timestamp:%Y-%m-%d}" if entry.timestamp is not None else ""
    text = entry.content if entry.is_summary else shortened(entry.content, ENTRY_CHARS_MAX)
    return f"- ({entry.layer}{day}, id {entry.id}){key}{when} {text}"
