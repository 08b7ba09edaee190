"""What search finds of the built-in events: which texts they bring, which they end, which they destroy."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, cast

from memory_engine.core.chunks import content_text
from memory_engine.core.codec import encode_json
from memory_engine.core.events.base import Event
from memory_engine.core.events.compaction import (
    CompactionAbandoned,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    CompactionUndone,
    EventSkipped,
)
from memory_engine.core.events.memory import (
    ExecutionPause,
    ExecutionResume,
    ExecutionRetry,
    MemoryForget,
    SessionEnded,
    SessionStarted,
    ThreadSeeded,
)
from memory_engine.core.events.messages import (
    LlmClarification,
    LlmSkillCall,
    LlmSubagentMessage,
    LlmSubagentSpawn,
    LlmTextResponse,
    LlmThinking,
    LlmToolCall,
    ParentAgentMessage,
    SkillError,
    SkillResult,
    SubagentError,
    SubagentResult,
    ToolError,
    ToolResult,
    UserMessage,
)
from memory_engine.core.events.tasks import (
    TaskAbandoned,
    TaskCompleted,
    TaskStarted,
    TaskTerminated,
    TodoExpanded,
    TodoSet,
)
from memory_engine.core.lazy import regex
from memory_engine.store.passages import NOTHING, Extracted, Extractor, Extractors, Text, checked
from memory_engine.views.conversation.events import CycleStarted, ExchangeFinished, SummaryRolled
from memory_engine.views.documents.fold import EXTRACTORS as DOCUMENTS
from memory_engine.views.layers.events import (
    MemoryAppended,
    MemoryCleared,
    MemoryCompacted,
    MemoryRecalled,
    MemoryRemoved,
    MemoryShared,
)
from memory_engine.views.patterns.fold import EXTRACTORS as PATTERNS
from memory_engine.views.playbooks.events import PlaybookPromoted, PlaybookRemoved, PlaybookSaved, playbook_id
from memory_engine.views.preferences.events import PreferenceRemoved, PreferenceUpdated
from memory_engine.views.promotion.events import (
    AgentMdPromoted,
    AgentMdRemoved,
    AgentMdUploaded,
    PromotionDecided,
    ReportSaved,
)
from memory_engine.views.scratchpad.events import ScratchpadRemoved, ScratchpadWritten
from memory_engine.views.screen.events import ScreenInjected
from memory_engine.views.tool_cache.events import ToolResultCached

WHOLE_MAX = 4_000
"""Characters up to which a text is one passage."""
PIECE_MAX = 1_500
"""A longer one is cut into pieces of at most so many, at paragraphs, lines, sentences or blanks."""
MEMORY = "memory"
"""The kind of entries of the layers."""
SUMMARY = "summary"
"""The kind of what stands for other passages. It is left out unless it is asked for: its originals are found."""
_BREAKS = ("\n\n", "\n", ". ", " ")

E = TypeVar("E", bound=Event)

_SPOKEN: Mapping[type[Event], tuple[str, str, str]] = {
    UserMessage: ("message", "user", "name"),
    ParentAgentMessage: ("message", "user", "agent_id"),
    LlmTextResponse: ("message", "assistant", "name"),
    LlmClarification: ("message", "assistant", ""),
    LlmSubagentMessage: ("message", "assistant", "agent_id"),
    ToolResult: ("tool", "tool", "name"),
    SkillResult: ("tool", "tool", "name"),
    SubagentResult: ("tool", "tool", "agent_id"),
    ToolError: ("tool", "tool", "name"),
    SkillError: ("tool", "tool", "name"),
    SubagentError: ("tool", "tool", "agent_id"),
    TaskCompleted: ("task", "", ""),
    TaskAbandoned: ("task", "", ""),
    TaskTerminated: ("task", "", ""),
}
"""Events that are found by their `content`: as what kind, in whose role, and which field names the speaker."""
_SILENT: tuple[type[Event], ...] = (
    CompactionAbandoned, CompactionFailed, CompactionStarted, EventSkipped, ExecutionPause, ExecutionResume,
    ExecutionRetry, LlmThinking, MemoryRecalled, MemoryShared, PlaybookPromoted, PromotionDecided, SessionEnded,
    SessionStarted, SummaryRolled,
)  # fmt: skip
"""Events that hold text and are not found: reasoning, what was recalled, and what other events say."""


def pieces(text: str, *, whole_max: int = WHOLE_MAX, piece_max: int = PIECE_MAX) -> Iterator[str]:
    """The text, or pieces of it if it is long; none for a blank one."""
    text = text.strip()
    if len(text) <= whole_max:
        if text:
            yield text
        return
    start = 0
    while start < len(text):
        end = min(len(text), start + piece_max)
        if end < len(text):
            end = next((at + len(mark) for mark in _BREAKS if (at := text.rfind(mark, start + 1, end)) > start), end)
        piece = text[start:end].strip()
        if piece:
            yield piece
        start = end


def found(text: str, kind: str, *, role: str = "", speaker: str = "", key: str = "") -> Extracted:
    """One text, in pieces if it is long."""
    return Extracted(tuple(Text(piece, kind, role, speaker, key) for piece in pieces(text)))


def _spoken(kind: str, role: str, speaker: str) -> Extractor:
    def extract(event: Event, _seq: int) -> Extracted:
        said = content_text(getattr(event, "content", ""))
        key = f"call:{call_id}" if kind == "tool" and (call_id := getattr(event, "call_id", "")) else ""
        return found(said, kind, role=role, speaker=getattr(event, speaker) if speaker else "", key=key)

    return extract


def _noted(event: Event, _seq: int) -> Extracted:
    """What events without an extractor of their own bring: the texts of their bodies."""
    said = ((content_text(body.content), body.label) for body in event.bodies())
    texts = tuple(Text(piece, "note", speaker=label) for text, label in said for piece in pieces(text))
    return Extracted(texts) if texts else NOTHING


def _silent(_event: Event, _seq: int) -> Extracted:
    return NOTHING


def _seeded(event: ThreadSeeded, _seq: int) -> Extracted:
    said = (content_text(chunk.content) for chunk in event.chunks)
    return Extracted(tuple(Text(piece, "note", "system") for text in said for piece in pieces(text)))


def _calls(event: LlmToolCall, _seq: int) -> Extracted:
    said = [Text(piece, "message", "assistant") for piece in pieces(event.content)]
    for call in event.calls:
        text = f"{call.name} {call.arguments}"
        said += (Text(piece, "tool", "assistant", call.name, f"call:{call.id}") for piece in pieces(text))
    return Extracted(tuple(said))


def _skill(event: LlmSkillCall, _seq: int) -> Extracted:
    text = f"{event.name} {event.arguments}"
    return found(text, "tool", role="assistant", speaker=event.name, key=f"call:{event.call_id}")


def _spawned(event: LlmSubagentSpawn, _seq: int) -> Extracted:
    return found(event.task, "task", role="assistant", speaker=event.agent_id, key=f"call:{event.call_id}")


def _task(event: TaskStarted, _seq: int) -> Extracted:
    return found(event.goal, "task")


def _todo(event: TodoSet | TodoExpanded, _seq: int) -> Extracted:
    texts = tuple(Text(item.text, "task", key=f"todo:{item.id}") for item in event.items if item.text.strip())
    return Extracted(texts, prefixes=("todo:",)) if isinstance(event, TodoSet) else Extracted(texts)


def _snippet(event: ScratchpadWritten, _seq: int) -> Extracted:
    return NOTHING if event.recalled else found(event.content, "snippet", speaker=event.flow, key="snippet:")


def _snippets_removed(event: ScratchpadRemoved, _seq: int) -> Extracted:
    heads = (chunk_id.partition(".")[0] for chunk_id in event.chunk_ids)
    seqs = tuple(int(head) for head in heads if head.isdecimal() and len(head) <= 18)
    return Extracted(prefixes=("snippet:",) if event.all else (), seqs=seqs)


def _cycle(event: CycleStarted, _seq: int) -> Extracted:
    return NOTHING if event.question_at else found(event.question, "message", role="user")


def _exchange(event: ExchangeFinished, _seq: int) -> Extracted:
    asked = () if event.cycle else found(event.question, "message", role="user").texts
    answered = () if event.answer_at else found(event.answer, "message", role="assistant").texts
    return Extracted((*asked, *answered))


def _cached(event: ToolResultCached, _seq: int) -> Extracted:
    key = f"call:{event.call_id}" if event.call_id else ""
    return found(event.result, "tool", role="tool", speaker=event.tool, key=key)


def _screen(event: ScreenInjected, _seq: int) -> Extracted:
    said = [Text(piece, "note") for piece in pieces(event.content)]
    for result in event.results:
        key = f"call:{result.call_id}"
        said += (Text(piece, "tool", "tool", result.tool, key) for piece in pieces(result.result))
    return Extracted(tuple(said))


def _report(event: ReportSaved, _seq: int) -> Extracted:
    said = tuple(Text(piece, "note", about=event.title) for piece in pieces(content_text(event.content)))
    return Extracted(said or tuple(Text(piece, "note") for piece in pieces(event.title)))


def _compacted(event: CompactionCompleted, _seq: int) -> Extracted:
    texts = []
    for replacement in event.replacements:
        for line in replacement.lines:
            seqs = {int(head) for source in line.sources if (head := source.partition(".")[0]).isdecimal()}
            texts += [Text(piece, SUMMARY, origins=tuple(sorted(seqs))) for piece in pieces(line.text)]
    return Extracted(tuple(texts))


def _uncompacted(event: CompactionUndone, _seq: int) -> Extracted:
    """The summary ends. What comes back was never away: its own events bring it."""
    return Extracted(seqs=(event.completed,))


def _entry(event: MemoryAppended, seq: int) -> Extracted:
    own = event.key or event.entry_id if event.layer == "semantic" else ""
    key = f"{MEMORY}:{event.layer}:{own or seq}"
    said = f"{event.condition} → {event.content}" if event.condition else event.content
    about = " ".join(filter(None, (own.replace("_", " "), *_values(event.metadata))))
    texts = tuple(
        Text(piece, MEMORY, key=key, origins=event.drawn_from, about=about, at_us=event.timestamp_us)
        for piece in pieces(said)
    )
    return Extracted(texts, keys=(key,) if own else ())


def _entries_summarized(event: MemoryCompacted, _seq: int) -> Extracted:
    key = f"{SUMMARY}:{event.layer}:"
    texts = (Text(piece, SUMMARY, key=key, origins=line.seqs) for line in event.lines for piece in pieces(line.text))
    return Extracted(tuple(texts), keys=(key,))


def _values(metadata: Mapping[str, object]) -> Iterator[str]:
    for value in metadata.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | tuple):
            yield from (part for part in value if isinstance(part, str))


def _entries_removed(event: MemoryRemoved, _seq: int) -> Extracted:
    return Extracted(seqs=event.seqs, origins=event.seqs)


def _cleared(event: MemoryCleared, _seq: int) -> Extracted:
    return Extracted(prefixes=tuple(f"{kind}:{layer}:" for layer in event.layers for kind in (MEMORY, SUMMARY)))


def _preference(event: PreferenceUpdated, _seq: int) -> Extracted:
    value = event.value if isinstance(event.value, str) else encode_json(event.value).decode()
    rule = f" {event.rule.name}" if event.rule is not None else ""
    said = f"{_words(event.key)}: {value}{rule}"
    key = f"preference:{event.key}"
    texts = tuple(Text(piece, "preference", key=key, about=event.reason) for piece in pieces(said))
    return Extracted(texts, keys=(key,))


def _preference_removed(event: PreferenceRemoved, _seq: int) -> Extracted:
    return Extracted(keys=(f"preference:{event.key}",))


_WITHIN_WORDS = regex(r"(?<=[a-z0-9])(?=[A-Z])")


def _words(key: str) -> str:
    return _WITHIN_WORDS.sub(" ", key).replace("_", " ")


def _playbook(event: PlaybookSaved, _seq: int) -> Extracted:
    key = f"playbook:{playbook_id(event.flow_dact, event.slots, event.tool_calls)}"
    told = (f" → {event.outcome}" if event.outcome else "") + "".join(f"; {c.tool_id}" for c in event.tool_calls)
    said = f"{event.user_query}{told}"
    return Extracted(tuple(Text(piece, "playbook", speaker=event.flow_dact, key=key) for piece in pieces(said)))


def _playbook_removed(event: PlaybookRemoved, _seq: int) -> Extracted:
    return Extracted(keys=(f"playbook:{event.playbook_id}",))


def _agent_md(event: AgentMdUploaded, _seq: int) -> Extracted:
    texts = (Text(piece, "agent_md", key="agent_md") for piece in pieces(event.content, whole_max=PIECE_MAX))
    return Extracted(tuple(texts), keys=("agent_md",))


def _agent_md_line(event: AgentMdPromoted, _seq: int) -> Extracted:
    line = " ".join(event.content.split())
    return Extracted((Text(line, "agent_md", key=f"agent_md/{line.casefold()}"),)) if line else NOTHING


def _agent_md_removed(event: AgentMdRemoved, _seq: int) -> Extracted:
    return Extracted(twins=tuple(int(line) for line in event.lines if line.isdecimal() and len(line) <= 18))


def _forgotten(event: MemoryForget, _seq: int) -> Extracted:
    made_of = (chunk_id.partition(".")[0] for chunk_id in event.summaries)
    drops = event.origins() | {int(head) for head in made_of if head.isdecimal() and len(head) <= 18}
    return Extracted(drops=tuple(sorted(drops)), drop_keys=tuple(f"call:{call_id}" for call_id in event.call_ids))


def _typed(cls: type[E], extract: Callable[[E, int], Extracted]) -> tuple[str, Extractor]:
    return cls.event_type, cast("Extractor", extract)  # asked for events of this class only


def builtin_extractors() -> dict[str, Extractor]:
    """By event type; those of users are added to them, or take their place."""
    spoken = {cls.event_type: _spoken(*how) for cls, how in _SPOKEN.items()}
    silent: dict[str, Extractor] = {cls.event_type: _silent for cls in _SILENT}
    typed = dict(
        (
            _typed(ThreadSeeded, _seeded),
            _typed(LlmToolCall, _calls),
            _typed(LlmSkillCall, _skill),
            _typed(LlmSubagentSpawn, _spawned),
            _typed(TaskStarted, _task),
            _typed(TodoSet, _todo),
            _typed(TodoExpanded, _todo),
            _typed(ScratchpadWritten, _snippet),
            _typed(ScratchpadRemoved, _snippets_removed),
            _typed(CycleStarted, _cycle),
            _typed(ExchangeFinished, _exchange),
            _typed(ToolResultCached, _cached),
            _typed(ScreenInjected, _screen),
            _typed(ReportSaved, _report),
            _typed(CompactionCompleted, _compacted),
            _typed(CompactionUndone, _uncompacted),
            _typed(MemoryAppended, _entry),
            _typed(MemoryRemoved, _entries_removed),
            _typed(MemoryCompacted, _entries_summarized),
            _typed(MemoryCleared, _cleared),
            _typed(PreferenceUpdated, _preference),
            _typed(PreferenceRemoved, _preference_removed),
            _typed(PlaybookSaved, _playbook),
            _typed(PlaybookRemoved, _playbook_removed),
            _typed(AgentMdUploaded, _agent_md),
            _typed(AgentMdPromoted, _agent_md_line),
            _typed(AgentMdRemoved, _agent_md_removed),
            _typed(MemoryForget, _forgotten),
        )
    )
    return {**spoken, **silent, **typed, **DOCUMENTS, **PATTERNS}


def extractors_of(added: Mapping[str, Extractor]) -> Extractors:
    """The built-in extractors with those that users add."""
    own = {event_type: checked(extract) for event_type, extract in added.items()}
    return Extractors({**builtin_extractors(), **own}, _noted)
