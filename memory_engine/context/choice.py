"""Choice of the atoms that a context shows in a given room: fixed atoms, a window of turns, and stand-ins for the rest.

The first context of a loop fills the room. Later contexts continue from what it kept: the window begins at the same
turn as long as everything fits, and then moves far enough to leave room for many calls.
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
from memory_engine.context.window import NEVER, Carried, Front, first_turn, first_whole, turn_at
from memory_engine.core.chunks import Chunk
from memory_engine.core.origins import HEARD
from memory_engine.core.tokens import TokenCounter
from memory_engine.language.text import terms

QUESTION_SHARE = 0.5
"""Share of the room that the message being worked on may take once newer turns have pushed it out of the window."""
SUMMARY_SHARE = 0.15
"""Share of the room that the lines of summaries may take. The shares of summaries, brief, question and notice sum to
less than 1: otherwise a larger budget could show less (see `window`)."""
NOTICE_SHARE = 0.05
"""Share of the room for the client's last message since the question, once newer turns have pushed that out too."""
ASKED_CHARS_MAX = 2_000
"""Maximum number of characters of a message from which the terms that it asks of later results are taken."""


class HeldWindow(msgspec.Struct, frozen=True):
    """The parts that the contexts of a loop show unchanged until the window moves.

    The window begins at the seq `begins`, and its last turn at `newest`. Turns from the seq `whole` on keep their long
    results; the newest turn with references may take `grown` tokens. In front of the window are: the turn before it,
    cut to `border` tokens (0: left out); the message that was being worked on, at the seq `asked` (0: none), cut to
    `asked_room`; the client's last message since then, at the seq `noticed` (0: none), cut to `noticed_room`; the lines
    of summaries; and the brief. `known` are the ids of all summaries from which the lines were chosen, and `summaries`
    of those that the lines or the window represent. A later summary that covers turns before the window moves the
    window.
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
        """Tokens of the brief and of what was pinned since it was built."""
        return self.brief_tokens + self.added_tokens

    @property
    def front_tokens(self) -> int:
        """Tokens of the brief and of the lines of summaries."""
        return self.summary_tokens + self.standing_tokens


class Chosen(msgspec.Struct, frozen=True):
    """The atoms of a context in order, the total tokens of the atoms and the held front, and what a loop keeps."""

    atoms: list[Costed]
    tokens: int = 0
    kept: HeldWindow = HeldWindow()

    def plus(self, tokens: int) -> "Chosen":
        """Return a copy with `tokens` added to its count."""
        return replace(self, tokens=self.tokens + tokens)


class InFront(msgspec.Struct, frozen=True):
    """The parts in front of a window: the lines of summaries, and the brief within its room (`None`: no brief)."""

    lines: SummaryLines = SummaryLines()
    brief: RoomyBrief | None = None

    @property
    def fronts(self) -> list[Front]:
        """Both parts, indexed by the seqs that they refer to."""
        return [self.lines.front, *([self.brief.front] if self.brief is not None else [])]

    @property
    def pins(self) -> frozenset[Place]:
        """Pins of the brief."""
        return frozenset(one.place for one in self.brief.block.weighed if one.pinned) if self.brief else frozenset()


class WindowChoice(msgspec.Struct, frozen=True):
    """The choice of a flow's turns for a room, continuing from what a loop `kept`.

    `refill` is the share of the room to which a window is cut when it has to move.
    """

    counter: TokenCounter
    render: Callable[[Chunk], Iterable[Message]]
    refill: float = 1.0
    whole: float = 1.0
    """Share of the room that long results may take beyond their references."""
    kept: HeldWindow | None = None
    summary: int | None = None
    """Maximum tokens of the lines of summaries; `None`: `SUMMARY_SHARE` of the room."""
    brief: OfferedBrief | None = None
    thinking: Carried = Carried()
    fills: bool = True
    """Whether a part of the turn before the window fills the rest of the room; otherwise the rest is left to recall."""

    def unbounded(self, flow: Flow) -> Chosen:
        """Return all atoms, for a context without a budget, with the brief of what they do not show whole."""
        atoms = flow.atoms()
        block = self.brief.whole(_said_whole(atoms), self.counter) if self.brief is not None else None
        return Chosen(atoms, kept=self._with_brief(HeldWindow(), block))

    def of(self, flow: Flow, room: int) -> Chosen | None:
        """Return the atoms to show in `room` tokens.

        `None` if the fixed atoms and a part of the newest turn do not fit.
        """
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
        """Continue the kept window while everything fits; otherwise move it so that it leaves room for many calls.

        `None` if no window was kept, or if not even the newest turn fits whole.
        """
        kept = self.kept
        if kept is None or kept.begins == NEVER:
            return None
        kept = self._with_new_pins(kept, front)
        left = room - kept.front_tokens - self.thinking.tokens(kept.begins)
        if front.lines.needs_others(kept.begins, kept.known):
            return self._fitting(flow, room, self._goal(flow, room, kept), front)
        place = turn_at(flow.turns, kept.begins, left)
        if place is not None and place < len(flow.turns):
            left -= self._thinking_at(flow, place - 1, kept.begins) if kept.border and place else 0
            shown = [*self._before(flow, place, kept), *self._window(flow, place, kept.whole, kept.grown)]
            if tokens_of(shown) <= left:
                tokens = tokens_of(shown) + kept.front_tokens
                summaries = kept.summaries | front.lines.behind(kept.begins)
                newest = flow.turns.began(len(flow.turns) - 1)
                kept = replace(kept, newest=newest, summaries=summaries, known=front.lines.ids)
                return Chosen(in_order_of_atoms([*flow.fixed, *shown]), tokens, kept)
        return self._fitting(flow, room, self._goal(flow, room, kept), front)

    def _goal(self, flow: Flow, room: int, kept: HeldWindow) -> int:
        """Return the number of tokens to which a window that moves is filled.

        It is the whole room if enough arrives between two contexts that the next one would move the window again
        anyway.
        """
        free = int(room * (1 - self.refill))
        came = turn_at(flow.turns, kept.newest + 1, free)
        grew = flow.turns.tokens_since(came) if came is not None else room
        return room if grew > free else room - free

    def _before(self, flow: Flow, place: int, kept: HeldWindow) -> Iterator[Costed]:
        """Yield what a kept window shows of the turns before it."""
        for began, room in ((kept.asked, kept.asked_room), (kept.noticed, kept.noticed_room)):
            heard = next((n for n in reversed(flow.turns.heard) if flow.turns.began(n) <= began), -1) if began else -1
            if 0 <= heard < place:
                yield from self._cut(flow, heard, room)
        if kept.border and place:
            yield from self._cut(flow, place - 1, kept.border)

    def _window(self, flow: Flow, place: int, whole: int, grown: int = 0) -> list[Costed]:
        """Return the turns from a place on, with long results of those before the seq `whole` cut to references.

        The newest of the cut turns may take `grown` tokens.
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
        """Return a turn with its long results cut to references."""
        return cut_to(one, referenced(one.pieces, LONG_RESULT, REFERENCE - MESSAGE_FRAME, self.counter), self.counter)

    def _cut(self, flow: Flow, place: int, room: int) -> list[Costed]:
        """Return a list of the turn cut to `room` tokens; empty if it cannot be cut that short."""
        cut = _cut_to(flow, flow.turns.one(place), room, self.counter, flow.asked_in(place))
        return [cut] if cut is not None else []

    def _afresh(self, flow: Flow, room: int, front: InFront) -> Chosen | None:
        """Return a window that fills the room, or a part of the newest turn if no turn fits whole."""
        found = self._fitting(flow, room, room, front)
        if found is not None or not len(flow.turns):
            return found
        less = InFront(brief=front.brief)
        tries = ((front, True), (less, True), (InFront(), True), (InFront(), False))
        parts = (self._part(flow, room, shown, with_question=question) for shown, question in tries)
        return next((part for part in parts if part is not None), None)

    def _fitting(self, flow: Flow, room: int, goal: int, front: InFront) -> Chosen | None:
        """Return the newest turns that fit whole into `goal` tokens, or `None` if not even one fits."""
        turns, asked, noticed = flow.turns, flow.asked, flow.noticed
        question_cap, notice_cap = int(room * QUESTION_SHARE), int(room * NOTICE_SHARE)
        heard = (_heard(flow, asked, question_cap), _heard(flow, noticed, notice_cap))
        fronts = [*front.fronts, *heard, self.thinking]
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
        left = goal - tokens_of(window) - made.front_tokens - self.thinking.tokens(begins)
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
        left -= self._thinking_at(flow, place - 1, begins) if is_free else 0
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

    def _thinking_at(self, flow: Flow, place: int, begins: int) -> int:
        """Return the tokens of the thinking in the turn at a place, before a window that begins at a seq."""
        return self.thinking.tokens(flow.turns.began(place)) - self.thinking.tokens(begins)

    def _in_front(self, front: "InFront", begins: int, shown: Sequence[Costed]) -> HeldWindow:
        """Return the parts in front of a window that begins at a seq and shows these atoms."""
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
        """Return a copy with this brief in front."""
        messages = tuple(self.render(block.chunk(0))) if block is not None else ()
        if block is None or not messages:
            return kept
        tokens = sum(message_tokens(message, self.counter) for message in messages)
        piece = RenderedChunk(block.chunk(0), messages, IN_NO_STATE)
        return replace(kept, brief=block, brief_piece=piece, brief_tokens=tokens)

    def _with_new_pins(self, kept: HeldWindow, front: InFront) -> HeldWindow:
        """Return a copy with what was pinned since the window began there, within the room of the brief."""
        block = front.brief.pinned_since(kept.pins, self.counter) if front.brief is not None else None
        if block is None:
            return replace(kept, added=None, added_piece=None, added_tokens=0)
        chunk = block.chunk(max(line.seq for line in block.lines))
        messages = tuple(self.render(chunk))
        tokens = sum(message_tokens(message, self.counter) for message in messages)
        return replace(kept, added=block, added_piece=RenderedChunk(chunk, messages, IN_NO_STATE), added_tokens=tokens)

    def _part(self, flow: Flow, room: int, front: InFront, *, with_question: bool) -> Chosen | None:
        """Return a part of the newest turn with the front parts that fit, or `None` if it cannot be cut that short."""
        newest, asked = len(flow.turns) - 1, flow.asked
        room -= self.thinking.tokens(flow.turns.began(newest))
        made = self._in_front(front, NEVER, flow.fixed)
        has_asked = with_question and 0 <= asked < newest
        first = self._cut(flow, asked, int(room * QUESTION_SHARE)) if has_asked else []
        shown = self._cut(flow, newest, room - made.front_tokens - tokens_of(first))
        if not shown or (has_asked and not first):
            return None
        atoms = [*first, *shown]
        return Chosen(in_order_of_atoms([*flow.fixed, *atoms]), tokens_of(atoms) + made.front_tokens, made)


def _said_whole(shown: Iterable[Costed]) -> frozenset[int]:
    """Return the seqs of the messages that these atoms show whole."""
    return frozenset(piece.chunk.said_at for one in shown for piece in one.pieces if not piece.shortened)


def _heard(flow: Flow, place: int, cap: int) -> Front:
    """Return the front of a message that the agent heard, for windows that begin after it; empty for place -1."""
    return Front.of([(flow.turns.began(place), flow.turns.sizes[place])], cap) if place >= 0 else Front()


def _cut_to(flow: Flow, one: Costed, room: int, counter: TokenCounter, asked: Costed | None = None) -> Costed | None:
    """Return the atom in at most `room` tokens, its longest texts cut if necessary, or `None` if that is impossible.

    A cut text keeps its beginning, its end, and what it says about the terms of `asked`.
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
