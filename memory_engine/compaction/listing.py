"""The compactions of a thread as a list, with the one that is due."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Literal, overload

import msgspec
from attrs import frozen

from memory_engine.compaction.history import Compaction, read_compactions
from memory_engine.compaction.plan import countable
from memory_engine.compaction.thresholds import is_due, is_overdue
from memory_engine.core.excerpts import FOCUS_CHARS_MAX, counted, number, one_line
from memory_engine.core.json_form import JsonForm
from memory_engine.core.state import State
from memory_engine.core.threads import CompactionPolicy
from memory_engine.reports import Column, Drawable, Line, Paper, line, table_lines
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.threads import OpenThreads


class DueCompaction(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """A compaction that the thresholds ask for, with the number of chunks and (estimated) tokens to compact.

    `auto` waits for a quiet moment or for the next event; `hard` runs before the next context.
    """

    trigger: Literal["auto", "hard"]
    chunks: int
    tokens: int


@frozen(kw_only=True)
class CompactionHistory(Sequence[Compaction], Drawable):
    """The compactions of a thread up to `seq`, in the order in which they began, and the one that is `due`, if any.

    `print()` shows them as `memory-engine compactions` does.
    """

    json_names = "thread_id seq compactions due"

    thread_id: str
    seq: int
    compactions: tuple[Compaction, ...] = ()
    due: DueCompaction | None = None

    @overload
    def __getitem__(self, at: int) -> Compaction: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Compaction, ...]: ...
    def __getitem__(self, at: int | slice) -> Compaction | tuple[Compaction, ...]:
        """Return a compaction, or a tuple of compactions for a slice."""
        return self.compactions[at]

    def __len__(self) -> int:
        return len(self.compactions)

    def drawn(self, paper: Paper) -> Iterator[Line]:
        """A row for each compaction, with a focus column if any has one, and a line if one is due."""
        due = ""
        if self.due is not None:
            how = f": `memory-engine compact {shlex.quote(self.thread_id)}` makes it now" if paper.of_command else ""
            due = f"one is due ({counted(self.due.chunks, 'chunk')}, {counted(self.due.tokens, 'token')}){how}"
        if self.compactions:
            rows = [_cells(one) for one in self.compactions]
            heads = _HEADS
            if any(one.focus for one in self.compactions):
                heads = [*heads, Column("FOCUS")]
                rows = [[*row, _focus(one)] for row, one in zip(rows, self.compactions, strict=True)]
            yield from table_lines(heads, rows, paper.room)
        else:
            due = f"nothing was compacted{'; ' if due else ''}{due}"
        if due:
            yield line(due)


async def compactions(thread: ThreadHandle) -> CompactionHistory:
    """See `ThreadCompactions.history`."""
    kernel = thread.kernel
    state = await thread.state()
    loaded = await kernel.store.load(thread.id, sources=False)
    open_at = loaded.head.open_compaction if state.seq == loaded.head.seq else None
    found = await read_compactions(kernel.reader, thread.id, state, open_at)
    runtime = kernel[OpenThreads].get(thread.id)
    policy = (loaded.record.policy or kernel.config.compaction).applied(runtime.window if runtime else None)
    due = _due(state, policy)
    return CompactionHistory(thread_id=thread.id, seq=state.seq, compactions=tuple(found), due=due)


def _due(state: State, policy: CompactionPolicy) -> DueCompaction | None:
    tally = countable(state) if is_due(state.tally, policy) else state.tally
    overdue = is_overdue(tally, policy)
    if not (overdue or is_due(tally, policy)):
        return None
    trigger: Literal["auto", "hard"] = "hard" if overdue else "auto"
    return DueCompaction(trigger=trigger, chunks=tally.compactable, tokens=tally.compactable_tokens)


# ---- as lines

_HEADS = [
    Column("COMPACTION", least=12), Column("EVENT", right=True), Column("TRIGGER"), Column("BY", least=8),
    Column("CHUNKS", right=True), Column("TOKENS", right=True), Column("SUMMARY"), Column("STATUS"),
]  # fmt: skip


def _focus(one: Compaction) -> str:
    return one_line(one.focus, FOCUS_CHARS_MAX) or "-"


def _cells(one: Compaction) -> list[str]:
    by = f" by event {one.by}" if one.by else ""
    why = f": {one.reason}{f' ({one.error})' if one.error else ''}" if one.reason else ""
    return [
        one.compaction_id,
        number(one.seq or one.started),
        one.trigger or "-",
        one.compactor or "-",
        number(one.chunks) if one.chunks else "-",
        f"{number(one.tokens_before)} → {number(one.tokens_after)}" if one.is_completed else "-",
        " ".join(one.summaries) or "-",
        one_line(f"{one.status}{by}{why}", 60),
    ]
