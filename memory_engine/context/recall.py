"""A context with recall: passages of the log that answer a question, in addition to the chunks of the state.

1. A policy divides the budget among summaries, recent turns and recall; pinned chunks and the newest turn come before
   all of them.
2. Search finds passages of the log. Passages that the context already shows, and near-duplicates, are dropped.
3. The best passages that fit go into one block before the newest turn, marked as memory, in chronological order.
4. If the question finds too little, the turns before the visible ones fill the block, newest first.

The block is a view: reading a context writes nothing to the log.
"""

from collections.abc import Iterable, Sequence
from contextlib import aclosing, suppress
from datetime import tzinfo
from functools import partial
from itertools import groupby

import msgspec
from attrs import evolve
from msgspec.structs import replace

from memory_engine.context.budget import ContextPolicy
from memory_engine.context.builder import ContextBuilder, ContextDraft
from memory_engine.context.choice import HeldWindow
from memory_engine.context.context import Context, Spent
from memory_engine.context.covered import Covered
from memory_engine.context.excerpt import excerpt
from memory_engine.context.live import over_newest
from memory_engine.context.ownership import Viewer, visible
from memory_engine.context.recall_from import searchable
from memory_engine.context.rendering import IN_NO_STATE, Message, RenderedChunk
from memory_engine.context.standing import OfferedBlock
from memory_engine.core.aside import aside
from memory_engine.core.chunks import Chunk, ChunkType, Retention
from memory_engine.core.clock import local_time
from memory_engine.core.events.context import RecalledPassage
from memory_engine.core.state import State
from memory_engine.errors import IntegrityError, ThreadNotFound
from memory_engine.language.text import terms
from memory_engine.recall.candidates import Choice
from memory_engine.recall.extractors import MEMORY
from memory_engine.recall.hits import Found, Hit, Shown, read_passages
from memory_engine.recall.question import TERMS_MAX
from memory_engine.recall.repetition import REPEATED_TERMS_MIN, Repetitions
from memory_engine.recall.search import LIMIT_MAX, Asked
from memory_engine.recall.service import Recall, checked_query, note_question
from memory_engine.recall.several import asks_for_several
from memory_engine.recall.trust import trusted_hits
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.passages import PLACES_BITS, LookUp

OWN_KINDS = ("message", "tool", "note", "task", "snippet")
"""Kinds of passages that are recalled from the thread itself."""
OTHER_KINDS = ("memory", "preference", "playbook", "agent_md", "document")
"""Further kinds of passages that are recalled from other threads."""
HEADING = "Oldest first:"
ROOM_MIN = 40
"""Minimum tokens of room for a block."""
WORTHWHILE = 24
"""Minimum tokens for a shortened passage."""
PASSAGE_SHARE = 0.5
"""Share of the room above which a passage is shortened, so that one answer does not fill the block."""
LISTED_SHARE, LISTED_TOKENS_MIN = 0.2, 150
"""The same where the question asks for several things, each in another passage; and the least tokens it leaves."""
READ_AT_ONCE = 64
"""Number of passages whose texts are read together: most blocks are full after the first or second batch."""
HIT_TOKENS_MIN = 12
"""Approximate tokens of the shortest passages: the search asks for as many hits as could fit."""
COVERED_CHARS_MIN = 24
"""Minimum characters of a text that counts as shown if the context contains it; a shorter one may match by chance."""
PIECES_MAX = 2
"""Maximum number of passages of one event that fill up a block."""


class RecallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The query, the budget in tokens (`None`: in addition to the whole state), the seq to read as of, and the threads.

    `covered` are the originals behind the summaries, `kept` what the last context of the same loop kept. `most` limits
    the tokens of the block.
    """

    query: str
    max_tokens: int | None
    at: int | None
    policy: ContextPolicy
    others: Sequence[ThreadHandle] = ()
    covered: Covered | None = None
    kept: HeldWindow | None = None
    most: int | None = None


async def recalled_context(
    thread: ThreadHandle, state: State, recall: RecallRequest, standing: Sequence[OfferedBlock] = ()
) -> Context:
    """Return the context of a state with the passages that a question recalls.

    Raises `ContextBudgetError`, `InvalidSearch` for a thread that this one may not recall from, and `ThreadNotFound`.
    """
    checked_query(recall.query)
    await searchable(thread, recall.others, at=recall.at)
    draft = await _draft(thread.kernel, thread.id, state, recall, standing)
    return await recalled_into(thread, state, recall, draft)


async def recalled_into(thread: ThreadHandle, state: State, recall: RecallRequest, draft: ContextDraft) -> Context:
    """Return the context of a draft with the passages that a question recalls, in the room that the draft leaves.

    Raises `InvalidSearch` for a thread that this one may not recall from, and `ThreadNotFound`.
    """
    kernel = thread.kernel
    query = checked_query(recall.query)
    others = await searchable(thread, recall.others, at=recall.at)
    if recall.most is not None:
        draft = replace(draft, room=min(draft.room, recall.most))
    if draft.room < ROOM_MIN or not state.seq:
        return await aside(draft.finished, items=len(draft.pieces))
    least = recall.policy.min_trust
    limit = LIMIT_MAX if least else min(LIMIT_MAX, draft.room // HIT_TOKENS_MIN + len(draft.pieces))
    kinds = OWN_KINDS + OTHER_KINDS if others else OWN_KINDS
    zone = await kernel[Recall].zone(thread.id)
    asked = Asked(query=query, limit=limit, kinds=kinds, upto=recall.at or 0, zone=zone)
    note_question(kernel, thread.id, query)
    found, behind, choice = await kernel[Recall].search_in_parts((thread.id, *others), asked, READ_AT_ONCE)
    block = _Block(draft, query, choice)
    count, untrusted = len(found), 0
    async with aclosing(behind):
        hits: Sequence[Hit] | None = found.hits
        while hits is not None:
            seen = await _seen_in(kernel, Viewer((await thread.info()).user_id, thread.id), hits) if others else hits
            if least is not None:
                trusted = await trusted_hits(kernel, seen, least)
                seen, untrusted = trusted, untrusted + len(seen) - len(trusted)
            if not block.take(h for h in seen if h.thread_id != thread.id or h.seq <= state.seq):
                break
            hits = await anext(behind, None)
            count += len(hits or ())
    if count < limit and block.left >= ROOM_MIN and least is None:  # filled up, it would show what anyone said lately
        await _fill(kernel, draft, block, recall.at or 0, zone)
    made = await aside(block.context, items=len(draft.pieces))
    return evolve(made, recall_failure=found.failure, untrusted=untrusted)


async def recalled_beside(
    kernel: Kernel, viewer: Viewer, found: Found, beside: Sequence[str], max_tokens: int
) -> tuple[str, tuple[Hit, ...]]:
    """Return a message of at most `max_tokens` with the best hits that a viewer may see, and these hits.

    Use it for a model whose request is built elsewhere: `beside` are the texts of that request, which are not repeated.
    Returns an empty message if nothing remains.
    """
    seen = await _seen_in(kernel, viewer, found.hits)
    return await aside(
        partial(_recall_beside, kernel, found.query, seen, beside, max_tokens), items=len(beside) + len(seen)
    )


def _recall_beside(
    kernel: Kernel, query: str, hits: Sequence[Hit], beside: Sequence[str], max_tokens: int
) -> tuple[str, tuple[Hit, ...]]:
    notice = Chunk(id="beside", type=ChunkType.NOTICE, content="", retention=Retention.EPHEMERAL)
    given: tuple[Message, ...] = tuple({"role": "user", "content": text} for text in beside)
    draft = ContextDraft(
        state=State(),
        thread_id="",
        pieces=(RenderedChunk(notice, given, IN_NO_STATE),),
        standing=(),
        spent=Spent(),
        room=max_tokens,
        before=0,
        builder=kernel[ContextBuilder],
    )
    block = _Block(draft, query)
    said = {_normalized(text) for text in beside}
    block.take(hit for hit in hits if _normalized(hit.text) not in said)
    shown, chosen = block.rendered()
    return "\n".join(str(message["content"]) for message in shown.messages) if shown else "", chosen


async def are_found(kernel: Kernel, hits: Iterable[Hit]) -> bool:
    """Return whether a search can still find all of these: none was forgotten or erased, and none has ended."""
    by_thread: dict[str, set[int]] = {}
    for hit in hits:
        by_thread.setdefault(hit.thread_id, set()).add(hit.seq << PLACES_BITS | hit.n)
    for thread_id, places in by_thread.items():
        try:
            looked = await kernel[Recall].indexing.look_up(thread_id, LookUp(near=tuple(places)))
        except (ThreadNotFound, IntegrityError):
            return False
        if not places.issubset(looked.chosen):
            return False
    return True


async def _seen_in(kernel: Kernel, viewer: Viewer, hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits that may be shown in a thread: an agent's memory also holds what other users said."""
    entries: dict[str, set[int]] = {}
    for hit in hits:
        if hit.kind == MEMORY and hit.thread_id != viewer.thread_id:
            entries.setdefault(hit.thread_id, set()).add(hit.seq)
    seen = {there: await visible(kernel, there, seqs, viewer) for there, seqs in entries.items()}
    everything = frozenset(hit.seq for hit in hits)
    return [hit for hit in hits if hit.kind != MEMORY or hit.seq in seen.get(hit.thread_id, everything)]


async def context_with(
    thread: ThreadHandle, state: State, recall: RecallRequest, standing: Sequence[OfferedBlock], text: str
) -> Context | None:
    """Return the context of a state with a block that was chosen before, or `None` if the block no longer fits.

    Raises `ContextBudgetError`.
    """
    draft = await _draft(thread.kernel, thread.id, state, recall, standing)
    block = draft.block(text)
    if draft.tokens(block) > draft.room:
        return None
    return await aside(lambda: draft.finished(block), items=len(draft.pieces))


async def _draft(
    kernel: Kernel, thread_id: str, state: State, recall: RecallRequest, standing: Sequence[OfferedBlock]
) -> ContextDraft:
    draft = partial(
        kernel[ContextBuilder].draft,
        thread_id=thread_id,
        max_tokens=recall.max_tokens,
        policy=recall.policy,
        standing=standing,
        covered=recall.covered,
        kept=recall.kept,
    )
    if recall.at is None and recall.max_tokens is not None:
        return await over_newest(kernel, thread_id, state, draft)
    return await aside(lambda: draft(state), items=state.tally.chunks)


class _Block:
    """The chosen passages, within the room."""

    def __init__(self, draft: ContextDraft, query: str, choice: Choice | None = None) -> None:
        self._draft = draft
        self._query_terms = frozenset(terms(query)[:TERMS_MAX])
        self._choice = choice
        self._visible = _Visible(draft)
        self._chosen: list[Hit] = []
        self._places: set[tuple[str, int, int]] = set()
        self._said: Repetitions[Hit] = Repetitions()
        self._days: set[str] = set()
        self._left = draft.room - draft.tokens(draft.block(HEADING))
        self._most = max(WORTHWHILE, int(self._left * PASSAGE_SHARE))
        if asks_for_several(query):
            self._most = min(self._most, max(LISTED_TOKENS_MIN, int(self._left * LISTED_SHARE)))

    @property
    def left(self) -> int:
        """Remaining tokens."""
        return self._left

    def take(self, hits: Iterable[Hit]) -> bool:
        """Add the hits that fit, best first; a hit that is too long is added as an excerpt if enough of it fits.

        Returns whether further hits may fit.
        """
        for hit in hits:
            if self._left < WORTHWHILE // 2:
                return False
            if self._visible.shows(hit) or self._is_said(hit, said := self._terms(hit)):
                continue
            size = self._size(hit)
            if size > min(self._left, self._most):
                hit = self._shortened(hit, min(self._left, self._most))  # noqa: PLW2901 - the same passage
                size = self._size(hit)
                if not hit.text:
                    continue
            self._add(hit, size, said)
        return self._left >= WORTHWHILE // 2

    def append(self, hit: Hit, said: frozenset[str]) -> bool:
        """Add one passage with these terms, once, if it fits. Return whether the next may still fit."""
        if _passage_key(hit) in self._places or self._visible.shows(hit) or self._is_said(hit, said):
            return True
        size = self._size(hit)
        if size > self._left:
            return False
        self._add(hit, size, said)
        return True

    def shows_event(self, seq: int) -> bool:
        """Return whether the context already shows all of one of the thread's own events."""
        return self._visible.shows_event(seq)

    def context(self) -> Context:
        """Return the context with the chosen passages."""
        block, chosen = self.rendered()
        return evolve(self._draft.finished(block), recalled=chosen)

    def rendered(self) -> tuple[RenderedChunk | None, tuple[Hit, ...]]:
        """Return the block and the passages in it: `None` and none if nothing fits, or if a renderer hides it."""
        chosen = sorted(self._chosen, key=lambda hit: (hit.at, hit.thread_id, hit.seq, hit.n))
        while chosen:
            block = self._draft.block("\n".join([HEADING, *_day_lines(chosen)]))
            if not block.messages:
                break  # a renderer hides the recalled block
            if self._draft.tokens(block) <= self._draft.room:
                return block, tuple(chosen)
            chosen.remove(self._chosen.pop())  # a renderer added text, or a tokenizer counts more at the joints
        return None, ()

    def _add(self, hit: Hit, size: int, said: frozenset[str]) -> None:
        self._left -= size
        self._chosen.append(hit)
        self._days.add(hit.day)
        self._places.add(_passage_key(hit))
        self._said.add((hit.role, hit.speaker), said, hit)

    def _is_said(self, hit: Hit, said: frozenset[str]) -> bool:
        """Return whether the speaker of a passage with these terms says the same in an added one."""
        return len(said) >= REPEATED_TERMS_MIN and self._said.get((hit.role, hit.speaker), said) is not None

    def _terms(self, hit: Hit) -> frozenset[str]:
        return _hit_terms(hit, None if self._choice is None else self._choice.terms_at(hit.passage))

    def _size(self, hit: Hit) -> int:
        """Return the tokens of a passage, including its day heading if it is the first passage of its day."""
        day = "" if hit.day in self._days else f"[{hit.day}]\n"
        return self._draft.builder.counter.count(f"{day}{_hit_item(hit)}\n")

    def _shortened(self, hit: Hit, room: int) -> Hit:
        """Return the hit with an excerpt as its text, or with no text if too little fits."""
        room -= self._size(replace(hit, text=""))
        if room < WORTHWHILE:
            return replace(hit, text="")
        return replace(hit, text=excerpt(hit.text, self._query_terms, room, self._draft.builder.counter))


def _hit_terms(hit: Hit, indexed: Sequence[str] | None) -> frozenset[str]:
    """Return the terms of a hit's text: those indexed for its passage, unless the passage has a title."""
    return frozenset(terms(hit.text) if hit.about or indexed is None else indexed)


def _passage_key(hit: Hit) -> tuple[str, int, int]:
    """Return the identity of a passage, shortened or not."""
    return hit.thread_id, hit.seq, hit.n


class _Visible:
    """The chunks and texts that a draft shows without recall."""

    def __init__(self, draft: ContextDraft) -> None:
        self._thread_id = draft.thread_id
        own = [piece for piece in draft.pieces if piece.position > IN_NO_STATE]
        chunks = [chunk for piece in own for chunk in (piece.chunk, *draft.state.children(piece.chunk.id))]
        cut = {piece.chunk.id for piece in draft.pieces if piece.shortened}
        self._whole = {chunk.seq for chunk in chunks if chunk.id not in cut}
        self._partly = {chunk.seq for chunk in chunks if chunk.id in cut}
        self._partly |= {_chunk_seq(id_) for chunk in chunks if not chunk.lines for id_ in chunk.parent_ids}
        blocks = [block for block in draft.standing if not block.left_out]
        lines = [line for block in blocks for line in block.lines]
        self._standing = {(line.thread_id, line.seq) for line in lines if not line.is_part}
        self._partly |= {line.seq for line in lines if line.is_part and line.thread_id == self._thread_id}
        self._text = _normalized("\n".join(str(m.get("content")) for p in draft.pieces for m in p.messages))

    def shows_event(self, seq: int) -> bool:
        """Return whether the draft shows the chunk of an own event of the thread whole, or a standing line for it."""
        return seq in self._whole or (self._thread_id, seq) in self._standing

    def shows(self, hit: Hit) -> bool:
        """Return whether the draft shows a passage: its event's chunk, or its words."""
        own = hit.thread_id == self._thread_id
        if (own and hit.seq in self._whole) or (hit.thread_id, hit.seq) in self._standing:
            return True
        text = _normalized(hit.text)
        if len(text) < COVERED_CHARS_MIN and not (own and hit.seq in self._partly):
            return False
        return text in self._text


def _chunk_seq(chunk_id: str) -> int:
    return int(chunk_id.partition(".")[0])


def _normalized(text: str) -> str:
    return " ".join(text.split()).casefold()


def _day_lines(hits: Iterable[Hit]) -> list[str]:
    """Return the lines of passages in order, those of each day as a list below the day.

    Continuation lines of a passage are indented, so that none looks like a day or another passage.
    """
    days = groupby(hits, key=lambda hit: hit.day)
    return [line for day, said in days for line in (f"[{day}]", *map(_hit_item, said))]


def _hit_item(hit: Hit) -> str:
    return "\n  ".join(f"- {hit.below_its_day()}".splitlines())


async def _fill(kernel: Kernel, draft: ContextDraft, block: _Block, at: int, zone: tzinfo) -> None:
    """Add the turns before the visible ones to the remaining room, newest first, until one does not fit.

    They come from the index, which no longer contains passages that were forgotten or have ended.
    """
    last = draft.state.seq
    first = max(1, last + 1 - block.left // HIT_TOKENS_MIN - len(draft.pieces))
    unseen = [seq for seq in range(last, first - 1, -1) if not block.shows_event(seq)]
    for end in range(0, len(unseen), READ_AT_ONCE):
        page = reversed(unseen[end : end + READ_AT_ONCE])
        places = [seq << PLACES_BITS | n for seq in page for n in range(PIECES_MAX)]
        looked = await kernel[Recall].indexing.look_up(
            draft.thread_id, LookUp(near=tuple(places), kinds=OWN_KINDS, upto=at)
        )
        standing = sorted(set(places).intersection(looked.chosen), reverse=True)
        passages = await read_passages(kernel.reader, kernel.extractors, draft.thread_id, standing)
        for place in standing:
            hit = _said_lately(passages[place], draft.thread_id, zone) if place in passages else None
            if hit is not None and not block.append(hit, _hit_terms(hit, looked.rows[place].terms.split())):
                return


def _said_lately(passage: Shown, thread_id: str, zone: tzinfo) -> Hit:
    text, event = passage.text, passage.event
    return Hit(
        text=text.text,
        kind=text.kind,
        role=text.role,
        speaker=text.speaker,
        at=local_time(passage.at_us, zone),
        thread_id=thread_id,
        seq=event.seq,
        n=passage.n,
        event_id=event.id,
        event_type=event.type,
        score=0.0,
        why="said lately",
        key=text.key,
        about=text.about,
    )


async def recalled_hits(kernel: Kernel, thread_id: str, passages: Iterable[RecalledPassage]) -> tuple[Hit, ...]:
    """Return the passages of an earlier choice, read back from the log in chronological order, without deleted ones."""
    by_thread: dict[str, list[int]] = {}
    for passage in passages:
        by_thread.setdefault(passage.thread_id or thread_id, []).append(passage.seq << PLACES_BITS | passage.n)
    hits: list[Hit] = []
    zone = await kernel[Recall].zone(thread_id)
    for owner, places in by_thread.items():
        with suppress(ThreadNotFound):
            found = await read_passages(kernel.reader, kernel.extractors, owner, places)
            hits += [replace(_said_lately(one, owner, zone), why="recalled") for one in found.values()]
    return tuple(sorted(hits, key=lambda hit: (hit.at, hit.thread_id, hit.seq, hit.n)))
