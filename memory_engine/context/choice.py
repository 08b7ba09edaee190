"""The atoms that a context shows in a room of tokens: the fixed ones, the window of turns, what represents the others.

The first context of a loop fills the room. The next ones go on from what it kept: the window begins at the same turn
while all fits, and then moves so far that there is room for many calls.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from memory_engine.context.brief_block import OfferedBrief, Place, RankedBlock, RoomyBrief
from memory_engine.context.flow import (
    BORDER_MIN,
    LONG_RESULT,
    REFERENCE,
    Costed,
    Flow,
    cut_to,
    in_order_of_atoms,
    tokens_of,
)
from memory_engine.context.rendering import IN_NO_STATE, MESSAGE_FRAME, Message, RenderedChunk, message_tokens
from memory_engine.context.shortening import referenced, shorten
from memory_engine.context.summary_lines import SummaryLines
from memory_engine.context.window import NEVER, Front, first_turn, first_whole, turn_at
from memory_engine.core.chunks import Chunk
from memory_engine.core.origins import HEARD
from memory_engine.core.tokens import TokenCounter
from memory_engine.language.text import terms

QUESTION_SHARE = 0.5
"""The share of the room that the message being worked on may take once newer turns have pushed it out of the window."""
SUMMARY_SHARE = 0.15
"""The share of the room that the lines of summaries may take. With those of the brief, the question and the notice it
is less than 1: else a larger budget could show less (see `window`)."""
NOTICE_SHARE = 0.05
"""The share of the room for what the client said last since then, once newer turns have pushed that out too."""
ASKED_CHARS_MAX = 2_000
"""The characters of a message that say what it asks of the results that follow it."""


class HeldWindow(msgspec.Struct, frozen=True):
    """What the contexts of a loop show unchanged until the window moves.

    The window begins at the seq `begins`, and its last turn at `newest`. Turns from the seq `whole` on keep their long
    results, and the one before it has `grown` tokens. In front of the window are the turn before it cut to `border`
    tokens (0: it is left out), the message that was being worked on at the seq `asked` (0: none) cut to `asked_room`,
    what the client `noticed` since then cut to `noticed_room`, the lines of summaries and the brief. `summaries` are
    the ids of those that the lines or the window represent, of all that are `known`: the lines were chosen from them. A
    later one that tells of turns before the window moves it.
    """

    begins: int = NEVER
    newest: int = 0
    border: int = 0
    asked: int = 0
    asked_room: int = 0
    noticed: int = 0
    noticed_room: int = 0
    whole: int = 0
    grown: int = 0
    summary: RenderedChunk | None = None
    summary_tokens: int = 0
    summaries: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    brief: RankedBlock | None = None
    brief_piece: RenderedChunk | None = None
    brief_tokens: int = 0
    pins: frozenset[Place] = frozenset()
    added: RankedBlock | None = None
    added_piece: RenderedChunk | None = None
    added_tokens: int = 0

    @property
    def standing_tokens(self) -> int:
        """The tokens of the brief, with what was pinned since."""
        return self.brief_tokens + self.added_tokens

    @property
    def front_tokens(self) -> int:
        """The tokens of the brief and of the lines of summaries."""
        return self.summary_tokens + self.standing_tokens


class Chosen(msgspec.Struct, frozen=True):
    """The atoms of a context in order, the lines of its summaries, their tokens together, and what a loop keeps."""

    atoms: list[Costed]
    tokens: int = 0
    kept: HeldWindow = HeldWindow()

    def plus(self, tokens: int) -> "Chosen":
        """The same with so many tokens more."""
        return replace(self, tokens=self.tokens + tokens)


class InFront(msgspec.Struct, frozen=True):
    """What may be in front of a window: the lines of summaries, and the brief in its room (`None`: there is none)."""

    lines: SummaryLines = SummaryLines()
    brief: RoomyBrief | None = None

    @property
    def fronts(self) -> list[Front]:
        """Both by the seqs that they speak of."""
        return [self.lines.front, *([self.brief.front] if self.brief is not None else [])]

    @property
    def pins(self) -> frozenset[Place]:
        """The pins of the brief."""
        return frozenset(one.place for one in self.brief.block.weighed if one.pinned) if self.brief else frozenset()


class WindowChoice(msgspec.Struct, frozen=True):
    """How the turns of a flow are chosen for a room: by these tools, and going on from what a loop `kept`.

    `refill` is the share of the room that a window is cut to where it has to move.
    """

    counter: TokenCounter
    render: Callable[[Chunk], Iterable[Message]]
    refill: float = 1.0
    whole: float = 1.0
    """The share of the room for what long results take beyond references."""
    kept: HeldWindow | None = None
    summary: int | None = None
    """The tokens that the lines of summaries may take; `None`: their share of the room."""
    brief: OfferedBrief | None = None
    fills: bool = True
    """Whether a part of the turn before the window fills what is left of the room; else it is left to recall."""

    def unbounded(self, flow: Flow) -> Chosen:
        """All atoms, where there is no budget, with the brief of what they do not show whole."""
        atoms = flow.atoms()
        block = self.brief.whole(_said_whole(atoms), self.counter) if self.brief is not None else None
        return Chosen(atoms, kept=self._with_brief(HeldWindow(), block))

    def of(self, flow: Flow, room: int) -> Chosen | None:
        """The atoms to show in `room` tokens; `None` where the fixed ones and something of the newest do not fit."""
        room -= flow.fixed_tokens
        if room < 0:
            return None
        asked = flow.turns.began(flow.asked) if flow.asked >= 0 else 0
        lines = SummaryLines.of(
            flow.summaries, self._summary_room(room), self.counter, asked=asked, beside_brief=self.brief is not None
        )
        front = InFront(lines, self.brief.within(room, self.counter) if self.brief is not None else None)
        found = self._going_on(flow, room, front) or self._afresh(flow, room, front)
        return found.plus(flow.fixed_tokens) if found is not None else None

    def _summary_room(self, room: int) -> int:
        return int(room * SUMMARY_SHARE) if self.summary is None else self.summary

    def _going_on(self, flow: Flow, room: int, front: InFront) -> Chosen | None:
        """From where the window began before while all fits; else with a window that leaves room for many calls."""
        kept = self.kept
        if kept is None or kept.begins == NEVER:
            return None
        kept = self._with_new_pins(kept, front)
        left = room - kept.front_tokens
        if front.lines.needs_others(kept.begins, kept.known):
            return self._fitting(flow, room, self._goal(flow, room, kept), front)
        place = turn_at(flow.turns, kept.begins, left)
        if place is not None and place < len(flow.turns):
            shown = [*self._before(flow, place, kept), *self._window(flow, place, kept.whole, kept.grown)]
            if tokens_of(shown) <= left:
                tokens = tokens_of(shown) + kept.front_tokens
                summaries = kept.summaries | front.lines.behind(kept.begins)
                newest = flow.turns.began(len(flow.turns) - 1)
                kept = replace(kept, newest=newest, summaries=summaries, known=front.lines.ids)
                return Chosen(in_order_of_atoms([*flow.fixed, *shown]), tokens, kept)
        return self._fitting(flow, room, self._goal(flow, room, kept), front)

    def _goal(self, flow: Flow, room: int, kept: HeldWindow) -> int:
        """The tokens to which a window that moves is filled.

        All of the room where so much comes between two contexts that the next one moves the window again anyway.
        """
        free = int(room * (1 - self.refill))
        came = turn_at(flow.turns, kept.newest + 1, free)
        grew = flow.turns.tokens_since(came) if came is not None else room
        return room if grew > free else room - free

    def _before(self, flow: Flow, place: int, kept: HeldWindow) -> Iterator[Costed]:
        """What a kept window shows of the turns before it."""
        for began, room in ((kept.asked, kept.asked_room), (kept.noticed, kept.noticed_room)):
            heard = next((n for n in reversed(flow.turns.heard) if flow.turns.began(n) <= began), -1) if began else -1
            if 0 <= heard < place:
                yield from self._cut(flow, heard, room)
        if kept.border and place:
            yield from self._cut(flow, place - 1, kept.border)

    def _window(self, flow: Flow, place: int, whole: int, grown: int = 0) -> list[Costed]:
        """The turns from a place on, long results of those before the seq `whole` cut to references.

        The newest of these turns may take `grown` tokens.
        """
        turns = flow.turns
        shown = list(turns.since(place))
        light = [n for n, one in enumerate(shown) if one.light < one.tokens and turns.began(place + n) < whole]
        for n in light:
            shown[n] = flow.cuts.known(shown[n], None, -1, self.counter, partial(self._light, shown[n])) or shown[n]
        if grown and light:
            shown[light[-1]] = (self._cut(flow, place + light[-1], grown) or shown[light[-1] :])[0]
        return shown

    def _light(self, one: Costed) -> Costed:
        """A turn with its long results cut to references."""
        return cut_to(one, referenced(one.pieces, LONG_RESULT, REFERENCE - MESSAGE_FRAME, self.counter), self.counter)

    def _cut(self, flow: Flow, place: int, room: int) -> list[Costed]:
        """A turn cut to a room, as a list; empty where it cannot be cut so short."""
        cut = _cut_to(flow, flow.turns.one(place), room, self.counter, flow.asked_in(place))
        return [cut] if cut is not None else []

    def _afresh(self, flow: Flow, room: int, front: InFront) -> Chosen | None:
        """A window that fills the room; one that shows nothing but a part of the newest turn, if it must."""
        found = self._fitting(flow, room, room, front)
        if found is not None or not len(flow.turns):
            return found
        less = InFront(brief=front.brief)
        tries = ((front, True), (less, True), (InFront(), True), (InFront(), False))
        parts = (self._part(flow, room, shown, with_question=question) for shown, question in tries)
        return next((part for part in parts if part is not None), None)

    def _fitting(self, flow: Flow, room: int, goal: int, front: InFront) -> Chosen | None:
        """The newest turns that fit whole into `goal` tokens; `None` where not even one does."""
        turns, asked, noticed = flow.turns, flow.asked, flow.noticed
        question_cap, notice_cap = int(room * QUESTION_SHARE), int(room * NOTICE_SHARE)
        fronts = [*front.fronts, _heard(flow, asked, question_cap), _heard(flow, noticed, notice_cap)]
        is_all = turns.tokens <= goal and first_turn(turns, goal, fronts, goal) == 0
        saving = goal if is_all else int(goal * self.whole)
        place = first_turn(turns, goal, fronts, saving)
        if place == len(turns) > 0:
            return None
        begins = min((turns.began(n) for n in range(place, len(turns))), default=NEVER)
        first = first_whole(turns, saving)
        whole = turns.began(first) if place < first < len(turns) else NEVER if first == len(turns) else 0
        window = self._window(flow, place, whole)
        made = self._in_front(front, begins, [*flow.fixed, *window])
        left = goal - tokens_of(window) - made.front_tokens
        has_asked = 0 <= asked < place
        asked_room = max(question_cap, left) if asked == place - 1 else question_cap
        question = self._cut(flow, asked, asked_room) if has_asked else []
        left -= tokens_of(question)
        noticed_room = max(notice_cap, left) if noticed == place - 1 else notice_cap
        notice = self._cut(flow, noticed, noticed_room) if 0 <= noticed < place else []
        left -= tokens_of(notice)
        newest_cut = min(first, len(turns)) - 1
        grown = window[newest_cut - place].tokens + left if place <= newest_cut and left >= BORDER_MIN else 0
        if grown:
            window = self._window(flow, place, whole, grown)
            left = 0
        is_free = self.fills and place > 0 and place - 1 not in (asked, noticed) and left >= BORDER_MIN
        cut = self._cut(flow, place - 1, left) if is_free else []
        shown = [*question, *notice, *cut, *window]
        kept = replace(
            made,
            begins=begins,
            newest=turns.began(len(turns) - 1) if len(turns) else 0,
            border=left if cut else 0,
            asked=turns.began(asked) if has_asked else 0,
            asked_room=asked_room,
            noticed=turns.began(noticed) if notice else 0,
            noticed_room=noticed_room,
            whole=whole,
            grown=grown,
        )
        return Chosen(in_order_of_atoms([*flow.fixed, *shown]), tokens_of(shown) + made.front_tokens, kept)

    def _in_front(self, front: "InFront", begins: int, shown: Sequence[Costed]) -> HeldWindow:
        """What is in front of a window that begins at a seq and shows these atoms."""
        lines = front.lines.before(begins, self.render, self.counter)
        kept = HeldWindow(
            summary=lines.piece,
            summary_tokens=lines.tokens,
            summaries=lines.ids,
            known=front.lines.ids,
            pins=front.pins,
        )
        return self._with_brief(kept, front.brief.beside(_said_whole(shown), self.counter) if front.brief else None)

    def _with_brief(self, kept: HeldWindow, block: RankedBlock | None) -> HeldWindow:
        """The same with this brief in front."""
        messages = tuple(self.render(block.chunk(0))) if block is not None else ()
        if block is None or not messages:
            return kept
        tokens = sum(message_tokens(message, self.counter) for message in messages)
        piece = RenderedChunk(block.chunk(0), messages, IN_NO_STATE)
        return replace(kept, brief=block, brief_piece=piece, brief_tokens=tokens)

    def _with_new_pins(self, kept: HeldWindow, front: InFront) -> HeldWindow:
        """The same with what was pinned since the window began there, in the room that a brief may take."""
        block = front.brief.pinned_since(kept.pins, self.counter) if front.brief is not None else None
        if block is None:
            return replace(kept, added=None, added_piece=None, added_tokens=0)
        chunk = block.chunk(max(line.seq for line in block.lines))
        messages = tuple(self.render(chunk))
        tokens = sum(message_tokens(message, self.counter) for message in messages)
        return replace(kept, added=block, added_piece=RenderedChunk(chunk, messages, IN_NO_STATE), added_tokens=tokens)

    def _part(self, flow: Flow, room: int, front: InFront, *, with_question: bool) -> Chosen | None:
        """A part of the newest turn, with what of the rest has room; `None` where it cannot be cut so short."""
        newest, asked = len(flow.turns) - 1, flow.asked
        made = self._in_front(front, NEVER, flow.fixed)
        has_asked = with_question and 0 <= asked < newest
        first = self._cut(flow, asked, int(room * QUESTION_SHARE)) if has_asked else []
        shown = self._cut(flow, newest, room - made.front_tokens - tokens_of(first))
        if not shown or (has_asked and not first):
            return None
        atoms = [*first, *shown]
        return Chosen(in_order_of_atoms([*flow.fixed, *atoms]), tokens_of(atoms) + made.front_tokens, made)


def _said_whole(shown: Iterable[Costed]) -> frozenset[int]:
    """The seqs of the messages that these atoms show whole."""
    return frozenset(piece.chunk.said_at for one in shown for piece in one.pieces if not piece.shortened)


def _heard(flow: Flow, place: int, cap: int) -> Front:
    """A message that the agent heard, in front of a window that begins after it; nothing for no place."""
    return Front.of([(flow.turns.began(place), flow.turns.sizes[place])], cap) if place >= 0 else Front()


def _cut_to(flow: Flow, one: Costed, room: int, counter: TokenCounter, asked: Costed | None = None) -> Costed | None:
    """The atom in at most `room` tokens, its longest texts cut where they must be; `None` where that cannot be.

    Of a cut text its beginning and its end stay, and what it says about the terms that were asked.
    """
    if one.tokens <= room:
        return one
    return flow.cuts.known(one, asked, room, counter, lambda: _shortened(one, room, counter, _asked_terms(asked)))


def _asked_terms(asked: Costed | None) -> frozenset[str]:
    if asked is None:
        return frozenset()
    text = " ".join(chunk.text for chunk in asked.atom.chunks if chunk.type in HEARD)
    return frozenset(terms(text[:ASKED_CHARS_MAX]))


def _shortened(costed: Costed, room: int, counter: TokenCounter, asked: frozenset[str]) -> Costed | None:
    pieces = shorten(costed.pieces, room, counter, asked)
    return cut_to(costed, pieces, counter) if pieces is not None else None
