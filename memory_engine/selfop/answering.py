"""From a model's call of a memory tool to an answer in words: a model's mistake is answered, never raised."""

from collections.abc import Awaitable, Callable, Mapping

import msgspec
from attrs import frozen

from memory_engine.errors import InvalidInput, NotGranted, UnknownChunk, UnknownMemory
from memory_engine.projections.layers.compacting import shortened
from memory_engine.projections.layers.values import RECALLED_MARK, MemoryEntry, MemoryHit
from memory_engine.selfop import arguments as a
from memory_engine.selfop.schemas import parameters
from memory_engine.thread import Thread

ANSWER_CHARS_MAX = 12_000
ENTRY_CHARS_MAX = 1_200
OPEN_CHARS = 4_000

_CLASSES: Mapping[str, type[a.Arguments]] = {cls.tool: cls for cls in a.ARGUMENTS}


@frozen
class ToolAnswer:
    """What goes back to the model. `is_error`: the call could not be done, and the text says what to do instead."""

    text: str
    is_error: bool = False

    @property
    def is_recalled(self) -> bool:
        """Whether it holds what was remembered: nothing is learned from it a second time."""
        return self.text.startswith(RECALLED_MARK)


class _Refused(Exception):
    """The call cannot be done; the message is for the model."""


class MemoryTools:
    """Does what a model asks of a thread's memory. `scratchpad` is the conversation that the agent works in.

    Give an agent (`engine.agent("a")`) for `memory` to let it remember across conversations.
    """

    def __init__(self, memory: Thread, scratchpad: Thread | None = None) -> None:
        self._memory = memory.memory
        self._thread = memory
        self._conversation = scratchpad or memory
        self._calls: Mapping[type[a.Arguments], Callable[..., Awaitable[str]]] = {
            a.Append: self._append,
            a.Search: self._search,
            a.Learn: self._learn,
            a.Recall: self._recall,
            a.Compact: self._compact,
            a.Stats: self._stats,
            a.Clear: self._clear,
            a.Open: self._open,
            a.ScratchpadWrite: self._write,
            a.ScratchpadRead: self._read,
        }

    async def call(self, name: str, arguments: "str | bytes | Mapping[str, object]" = "{}") -> ToolAnswer:
        """Do one call, its arguments as the model wrote them (JSON text) or as a mapping.

        Raises only what is no mistake of the model: a `StorageError`, a closed engine or thread.
        """
        cls = _CLASSES.get(name)
        if cls is None:
            return ToolAnswer(f"There is no tool {name!r}. There are: {', '.join(_CLASSES)}.", is_error=True)
        try:
            asked = _read(cls, arguments)
            text = await self._calls[cls](asked)
        except _Refused as refused:
            return ToolAnswer(str(refused), is_error=True)
        except (InvalidInput, UnknownChunk, NotGranted) as error:
            return ToolAnswer(f"{name} was not done: {error}", is_error=True)
        return ToolAnswer(text if len(text) <= ANSWER_CHARS_MAX else text[: ANSWER_CHARS_MAX - 1] + "…")

    async def _append(self, asked: a.Append) -> str:
        if asked.layer == "procedural" and not (asked.condition or "").strip():
            raise _Refused("A rule needs a condition: when does it apply? Call memory_append again with condition.")
        entry = await self._memory.append(asked.layer, asked.content, condition=asked.condition or "")
        return f"Remembered in {asked.layer} memory. id: {entry.id}"

    async def _search(self, asked: a.Search) -> str:
        query = (asked.query or "").strip()
        if asked.last is not None and query:
            raise _Refused("Give either query or last, not both: a query finds what fits, last gives the latest.")
        if query:
            hits = await self._memory.search(asked.layer, query, asked.limit or 10)
        else:
            hits = await self._memory.search(asked.layer, last=asked.last or asked.limit or 10)
        if not hits:
            where = f"{asked.layer} memory" if asked.layer else "memory"
            return f"Nothing was found in {where}." + (" Try fewer or other words." if query else "")
        return "\n".join([RECALLED_MARK, *map(_hit_line, hits)])

    async def _learn(self, asked: a.Learn) -> str:
        former = await self._memory.recall(asked.key)
        await self._memory.learn(asked.key, asked.value)
        if former is None or former.value == asked.value:
            return f"Learned under {asked.key!r}."
        return f"Learned under {asked.key!r}. Until now it said: {shortened(former.value, 300)}"

    async def _recall(self, asked: a.Recall) -> str:
        known = await self._memory.recall(asked.key)
        if known is not None:
            return f"{RECALLED_MARK}\n{known.key}: {known.value}"
        alike = await self._memory.search("semantic", asked.key, 3)
        hint = f" Similar keys: {', '.join(hit.entry.key for hit in alike)}." if alike else ""
        return f"Nothing is known under {asked.key!r}.{hint}"

    async def _compact(self, asked: a.Compact) -> str:
        keep_last = 10 if asked.keep_last is None else asked.keep_last
        report = await self._memory.compact(asked.layer, keep_last=keep_last)
        if report.note:
            return f"Nothing was compacted: {report.note}."
        if report.summary is None:
            return f"{report.covered} older entries went; the last {report.kept} stayed."
        return f"{report.covered} entries are now one summary (id: {report.summary.id}); the last {report.kept} stayed."

    async def _stats(self, _asked: a.Stats) -> str:
        stats = await self._memory.get_stats()
        return (
            f"Working memory: about {stats.working_memory_tokens} tokens. "
            f"Episodic: {stats.episodic_entry_count} entries. Semantic: {stats.semantic_entry_count} facts. "
            f"Procedural: {stats.procedural_rule_count} rules."
        )

    async def _clear(self, asked: a.Clear) -> str:
        if not asked.confirm:
            raise _Refused(f"Nothing was cleared. To empty {asked.layer} memory, call memory_clear with confirm=true.")
        await self._memory.clear(asked.layer, reason="asked by the agent")
        return f"{asked.layer.capitalize()} memory is empty now."

    async def _open(self, asked: a.Open) -> str:
        try:
            entries = await self._memory.open(asked.reference.strip())
        except UnknownMemory:
            return await self._open_result(asked)
        return "\n".join([RECALLED_MARK, *map(_entry_line, entries)])

    async def _open_result(self, asked: a.Open) -> str:
        try:
            opened = await self._conversation.open(asked.reference, start=asked.start or 0, chars=OPEN_CHARS)
        except UnknownChunk:
            raise _Refused(
                f"There is nothing under {asked.reference!r}. Use an id from memory_search, or a reference such as "
                '"12.0" from a message.'
            ) from None
        more = f"\n[read on with start={opened.next_start}]" if opened.next_start is not None else ""
        place = f"characters {opened.start} to {opened.start + len(opened.text)} of {opened.total_chars}"
        return f"{RECALLED_MARK} {place}\n{opened.text}{more}"

    async def _write(self, asked: a.ScratchpadWrite) -> str:
        await self._conversation.scratchpad.write(asked.text)
        return "Noted on the scratchpad."

    async def _read(self, _asked: a.ScratchpadRead) -> str:
        snippets = await self._conversation.scratchpad.read()
        if not snippets:
            return "The scratchpad is empty."
        return "\n".join(
            f"- {RECALLED_MARK + ' ' if s.recalled else ''}{shortened(s.text, ENTRY_CHARS_MAX)}" for s in snippets
        )


def _read(cls: type[a.Arguments], arguments: "str | bytes | Mapping[str, object]") -> a.Arguments:
    """The arguments, checked. What is null counts as left out. Raises `_Refused` in words for the model."""
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


def _allowed(cls: type[a.Arguments]) -> str:
    """What the tool takes, in one sentence."""
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


def _hit_line(hit: MemoryHit) -> str:
    return _entry_line(hit.entry)


def _entry_line(entry: MemoryEntry) -> str:
    when = f" when {entry.condition}:" if entry.condition else ""
    key = f" {entry.key}:" if entry.key else ""
    day = f" {entry.timestamp:%Y-%m-%d}" if entry.timestamp is not None else ""
    text = entry.content if entry.is_summary else shortened(entry.content, ENTRY_CHARS_MAX)
    return f"- ({entry.layer}{day}, id {entry.id}){key}{when} {text}"
