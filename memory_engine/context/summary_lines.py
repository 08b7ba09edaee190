"""The lines of all summaries of a state, chosen for a window and read as one summary.

A line is needed once the window begins after the oldest event that it cites. If the needed lines exceed their share,
the highest ranked are shown: first rules that were read, then what belongs to the message being worked on, then the
others; within each group first the agent's decisions, then what is open, then work, newest first.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from memory_engine.context.flow import Costed
from memory_engine.context.rendering import Message, RenderedChunk, message_tokens
from memory_engine.context.shortening import LINES_LEFT_OUT_END, STATEMENTS_LEFT_OUT, keep_last_lines
from memory_engine.context.window import Front
from memory_engine.core.chunks import Chunk
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.lazy import lazy_module
from memory_engine.core.tokens import TokenCounter

if TYPE_CHECKING:
    from memory_engine.context import work_lines
else:
    work_lines = lazy_module("memory_engine.context.work_lines")

HEADINGS_TOKENS = 80
"""Approximate tokens that title and headings take around the lines."""
RANKS = {
    section: rank
    for rank, sections in enumerate((
        ("quoted",),
        ("decided",),
        ("asked", "next_steps"),
        ("current_state", "attempted_approaches", "tests"),
        ("said", "key_information"),
        ("files",),
        ("commands", "completed_actions"),
    ))
    for section in sections
}  # fmt: skip
"""Rank by section: which lines come first if not all fit. People's words come last in a context with a brief, which
shows those that still apply."""
OTHER_RANK = 5
ALWAYS_RANK = 0
BESIDE_BRIEF_RANK = 7


class _RankedLine(msgspec.Struct, frozen=True, gc=False):
    """A line, its summary's index, the oldest and newest seq that it cites, its tokens, and its rank."""

    line: SummaryLine
    summary: int
    oldest: int
    newest: int
    tokens: int
    rank: tuple[bool, bool, int, int]


class ShownLines(msgspec.Struct, frozen=True):
    """The lines in front of a window as one piece (`None`: no line is needed), and the tokens of the piece.

    `ids` are the ids of the summaries that the piece and the window represent.
    """

    piece: RenderedChunk | None = None
    tokens: int = 0
    ids: frozenset[str] = frozenset()


class SummaryLines(msgspec.Struct, frozen=True):
    """The lines of summaries, in order, and the tokens that they may take in front of a window."""

    summaries: Sequence[Costed] = ()
    lines: Sequence[_RankedLine] = ()
    front: Front = Front()

    @classmethod
    def of(
        cls,
        summaries: Sequence[Costed],
        cap: int,
        counter: TokenCounter,
        *,
        asked: int = 0,
        beside_brief: bool = False,
    ) -> "SummaryLines":
        """Collect the lines of these summaries, within `cap` tokens.

        `asked` is the seq of the message being worked on.
        """
        if not summaries:
            return cls()

        def rank(line: SummaryLine, newest: int) -> tuple[bool, bool, int, int]:
            of_section = RANKS.get(line.section, OTHER_RANK)
            if beside_brief and line.section == "said":
                of_section = BESIDE_BRIEF_RANK
            return of_section != ALWAYS_RANK, newest < asked, of_section, -newest

        lines = [line for n, one in enumerate(summaries) for line in _lines_of(n, one.atom.chunks[0], counter, rank)]
        sized = [(line.oldest, line.tokens) for line in lines]
        sized.append((min(line.oldest for line in lines), HEADINGS_TOKENS))
        return cls(summaries, lines, Front.of(sized, cap))

    def before(self, begins: int, render: Callable[[Chunk], Iterable[Message]], counter: TokenCounter) -> ShownLines:
        """Return the lines that a window beginning at a seq needs, as many as fit, as one piece."""
        needed = [line for line in self.lines if line.oldest < begins]
        if not needed:
            return ShownLines(ids=self.behind(begins))
        whole = self._whole(needed)
        if whole is not None and whole.tokens <= self.front.cap:
            return ShownLines(whole.pieces[0], whole.tokens, self._ids(needed, needed))
        ranked = sorted(needed, key=lambda line: line.rank)
        left, count = self.front.cap - HEADINGS_TOKENS, 0
        while count < len(ranked) and ranked[count].tokens <= left:
            left -= ranked[count].tokens
            count += 1
        while count:
            chosen = ranked[:count]
            piece = self._piece(chosen, len(needed) - count, render)
            tokens = sum(message_tokens(message, counter) for message in piece.messages)
            if tokens <= self.front.cap:
                return ShownLines(piece, tokens, self._ids(needed, chosen))
            count -= 1
        return self._cut(ranked[:1], needed, render, counter)

    @property
    def ids(self) -> frozenset[str]:
        """Ids of the summaries."""
        return frozenset(one.atom.chunks[0].id for one in self.summaries)

    def needs_others(self, begins: int, known: frozenset[str]) -> bool:
        """Return whether a window that begins at a seq needs lines of a summary that is not in `known`."""
        return not self.ids - known <= self.behind(begins)

    def behind(self, begins: int) -> frozenset[str]:
        """Return the ids of the summaries none of whose lines a window that begins at a seq needs."""
        needed = {line.summary for line in self.lines if line.oldest < begins}
        return frozenset(one.atom.chunks[0].id for n, one in enumerate(self.summaries) if n not in needed)

    def _cut(
        self,
        chosen: Sequence[_RankedLine],
        needed: Sequence[_RankedLine],
        render: Callable[[Chunk], Iterable[Message]],
        counter: TokenCounter,
    ) -> ShownLines:
        """Return the last lines of a single line's text that exceeds the room, as some compactors produce."""
        piece = keep_last_lines(self._piece(chosen, len(needed) - len(chosen), render), self.front.cap, counter)
        tokens = sum(message_tokens(message, counter) for message in piece.messages)
        has_text = not any(str(one.get("content")).endswith(LINES_LEFT_OUT_END) for one in piece.messages)
        if not has_text or tokens > self.front.cap:
            return ShownLines(ids=self._ids(needed, ()))
        return ShownLines(piece, tokens, self._ids(needed, chosen))

    def _whole(self, needed: Sequence[_RankedLine]) -> Costed | None:
        """Return the one summary that all needed lines belong to, if all of its lines are needed."""
        of = {line.summary for line in needed}
        if len(of) > 1 or len(needed) < sum(line.summary in of for line in self.lines):
            return None
        return self.summaries[of.pop()]

    def _piece(
        self, chosen: Sequence[_RankedLine], left_out: int, render: Callable[[Chunk], Iterable[Message]]
    ) -> RenderedChunk:
        """Return one summary of the chosen lines, in their original order, with the id of their newest summary."""
        in_order = [line for line in self.lines if line in set(chosen)]
        newest = self.summaries[max(line.summary for line in chosen)].atom.chunks[0]
        by_summary = [
            [line.line for line in in_order if line.summary == n] for n in sorted({line.summary for line in in_order})
        ]
        chunk = replace(newest, lines=work_lines.merged_lines(by_summary)) if newest.lines else newest
        messages = tuple(render(chunk))
        if left_out:
            messages = tuple(_marked(message, left_out) for message in messages)
        return RenderedChunk(chunk, messages, 0, shortened=bool(left_out))

    def _ids(self, needed: Sequence[_RankedLine], chosen: Sequence[_RankedLine]) -> frozenset[str]:
        """Return the ids of summaries represented by lines that are shown, or by originals if no line is needed."""
        shown, wanted = {line.summary for line in chosen}, {line.summary for line in needed}
        return frozenset(one.atom.chunks[0].id for n, one in enumerate(self.summaries) if n in shown or n not in wanted)


def _lines_of(
    summary: int, chunk: Chunk, counter: TokenCounter, rank: Callable[[SummaryLine, int], tuple[bool, bool, int, int]]
) -> list[_RankedLine]:
    """Return the lines of a summary; a summary without lines counts as one line."""
    parents = [_seq_or_zero(parent) for parent in chunk.parent_ids] or [0]
    lines = chunk.lines or (SummaryLine("current_state", chunk.text),)
    return [
        _RankedLine(line, summary, min(seqs), max(seqs), tokens, rank(line, max(seqs)))
        for line, tokens in zip(lines, _tokens_of(lines, counter), strict=True)
        for seqs in [[_seq_or_zero(source) for source in line.sources] or parents]
    ]


def _tokens_of(lines: Sequence[SummaryLine], counter: TokenCounter) -> list[int]:
    return [counter.count(f"- {line.text}\n") for line in lines]


def _marked(message: Message, left_out: int) -> Message:
    """Return the message with a mark after its first line that says how many lines are left out."""
    heading, newline, rest = str(message["content"]).partition("\n")
    return {**message, "content": f"{heading}\n{STATEMENTS_LEFT_OUT.format(left_out)}{newline}{rest}"}


def _seq_or_zero(chunk_id: str) -> int:
    head = chunk_id.partition(".")[0]
    return int(head) if head.isdecimal() else 0
