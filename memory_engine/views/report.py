"""State reports for people: the memory, the cached results, the agent's messages."""

import logging
from collections.abc import Mapping, Sequence

from attrs import field, frozen

from memory_engine.context.budget import DEFAULT_POLICY
from memory_engine.context.builder import ContextBuilder
from memory_engine.context.rendering import Message
from memory_engine.context.thread_context import standing_blocks
from memory_engine.core.aside import aside
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.conversation.fold import (
    CONVERSATION,
    SummaryRow,
    TallyRow,
    cycle_of,
    exchanges_of,
    summary_of,
    tally_of,
)
from memory_engine.views.conversation.texts import utf8_bytes
from memory_engine.views.conversation.view import Conversation
from memory_engine.views.screen.view import SCREEN, session_of
from memory_engine.views.tool_cache.view import TOOL_CACHE, CacheEntry, entries_of

_log = logging.getLogger("memory_engine.report")

LINE_CHARS_MAX = 240
"""Characters of one message or one call in the text; the data hold all of it."""
_JOINERS = "\u200c\u200d"
"""Joiners, which are part of words and emoji, and do not move the cursor."""


@frozen(kw_only=True)
class Report:
    """A report as a text, whose lines hold no control characters, and as plain JSON values."""

    text: str
    data: Mapping[str, object] = field(repr=False)

    def __str__(self) -> str:
        return self.text


@frozen(kw_only=True)
class Figures:
    """The first line of a report, in numbers."""

    session: str
    exchanges: int
    summary_bytes: int
    llm_compressions: int
    truncations: int
    is_cycle_open: bool


async def memory_report(thread: ThreadHandle, *, at: int | None = None) -> Report:
    """Report on a thread (as of an earlier seq, with `at`), and log it as one record of logger `memory_engine.report`.

    The record's message is the text; its attributes `thread_id` and `memory` hold the data for log collectors.
    """
    rows = await thread.rows(CONVERSATION, at=at)
    summary, tally = summary_of(rows), tally_of(rows)
    count, is_open = len(list(exchanges_of(rows))), cycle_of(rows) is not None
    session = session_of(await thread.rows(SCREEN, at=at)).session_id
    figures = figures_of(session or thread.id, count, summary, tally, is_cycle_open=is_open)
    cached = entries_of(await thread.rows(TOOL_CACHE, at=at))
    messages = await Conversation(thread).messages(at=at)
    if summary is None and not count and not is_open:  # the loop does not use conversation memory: show the context
        messages = await _context_messages(thread, at)
    report = Report(
        text=await aside(lambda: _report_text(figures, cached, messages), items=len(messages)),
        data={"thread_id": thread.id, **data_of(figures, cached, messages)},
    )
    _log.info("%s", report.text, extra={"thread_id": thread.id, "memory": report.data})
    return report


async def _context_messages(thread: ThreadHandle, at: int | None) -> list[Message]:
    """The whole context, without the compaction that asking for it may begin: a report changes nothing."""
    state = await thread.state(at=at)
    standing = await standing_blocks(thread, state, DEFAULT_POLICY, at=at)
    builder = thread.kernel[ContextBuilder]
    return await aside(lambda: builder.build(state, thread.id, standing=standing).messages, items=len(state))


def _report_text(figures: Figures, cached: Sequence[CacheEntry], messages: Sequence[Message]) -> str:
    return "\n\n".join((memory_text(figures), cache_text(cached), messages_text(messages)))


def figures_of(
    session: str, exchanges: int, summary: SummaryRow | None, tally: TallyRow, *, is_cycle_open: bool
) -> Figures:
    """The figures of a conversation's memory."""
    return Figures(
        session=session,
        exchanges=exchanges,
        summary_bytes=utf8_bytes(summary.text) if summary is not None else 0,
        llm_compressions=tally.compressions,
        truncations=tally.cuts,
        is_cycle_open=is_cycle_open,
    )


def memory_text(figures: Figures) -> str:
    """The state of the memory."""
    return (
        "=== MEMORY STATE ===\n"
        f"Session: {printable_line(figures.session)} | Exchanges: {figures.exchanges} | "
        f"Summary: {figures.summary_bytes} bytes | LLM compressions: {figures.llm_compressions}"
    )


def cache_text(cached: Sequence[CacheEntry]) -> str:
    """The state of the tool cache, in the order of caching."""
    lines = [
        f"  • {printable_line(one.tool)}({printable_line(repr(one.arguments))}): "
        f"{one.remaining}/{one.duration} exchanges remaining"
        for one in cached
    ]
    return "\n".join(["=== FUNCTION CACHE STATE ===", f"Cached functions: {len(cached)}", *lines])


def messages_text(messages: Sequence[Message]) -> str:
    """The agent's messages, a line for each."""
    lines = [
        f"[{n}] {str(message['role']).upper()}: {printable_line(message_line(message))}".rstrip()
        for n, message in enumerate(messages, start=1)
    ]
    return "\n".join([f"=== AGENT RECEIVES ({len(messages)} messages) ===", *lines])


def message_line(message: Message) -> str:
    """Everything a message says, with its calls."""
    content = message.get("content")
    parts = [content] if isinstance(content, str) else []
    if isinstance(content, list):
        parts = [part["text"] if part.get("type") == "text" else "[image]" for part in content]
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        parts.append(f"→ {call['function']['name']}({call['function']['arguments']})")
    return " ".join(parts)


def printable_line(text: str) -> str:
    """The text on one line, shortened, with invisible characters written out."""
    line = " ".join(text[: LINE_CHARS_MAX * 8].split())
    if len(line) > LINE_CHARS_MAX:
        line = line[: LINE_CHARS_MAX - 1] + "…"
    return "".join(c if c.isprintable() or c in _JOINERS else _written_out(c) for c in line)


def _written_out(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def data_of(figures: Figures, cached: Sequence[CacheEntry], messages: Sequence[Message]) -> dict[str, object]:
    """The report as plain JSON values."""
    return {
        "session": figures.session,
        "exchanges": figures.exchanges,
        "summary_bytes": figures.summary_bytes,
        "llm_compressions": figures.llm_compressions,
        "truncations": figures.truncations,
        "cycle_open": figures.is_cycle_open,
        "cached_functions": [
            {
                "tool": entry.tool,
                "parameters": entry.arguments,
                "remaining": entry.remaining,
                "duration": entry.duration,
                "hits": entry.hits,
                "event_id": entry.event_id,
            }
            for entry in cached
        ],
        "messages": list(messages),
    }
