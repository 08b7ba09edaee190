"""The brief in a context: people's statements selected by rank within a room, shown in chronological order.

Selection by rank guarantees that a larger room shows every statement that a smaller one shows. This module reads no
log, and its results depend on the arguments alone.
"""

from collections.abc import Callable, Collection, Sequence

import msgspec

from memory_engine.context.standing import StandingBlock, StandingLine
from memory_engine.context.window import Front
from memory_engine.core.tokens import TokenCounter

Place = tuple[str, int, int]
"""Identity of a statement: its thread, the seq of its message, its number within the message."""
FRAME_TOKENS = 4
"""Tokens of a statement in addition to its text: the start of its line, or the separator before it."""
CUT_TOKENS_MIN = 48
"""Minimum tokens that must remain of a statement that is cut; otherwise it is left out."""
HEAD_SHARE = 0.65
"""Share of a cut text that its beginning gets; its end gets the rest."""
GAP = "…"
INDENTED = "\n  "
"""Start of a continuation line of an item, where the plain line could be read as an item of its own."""


class Weighed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A statement as offered to the brief.

    `prefix`, shown before the text, is the question that the statement answers; `note`, shown after it, is a later
    remark about it. `request`: it belongs to the current request. `binds`: it is kept when other statements of a long
    request are dropped. `stands`: no later event has answered or superseded it. `begins_line`: it begins a line of its
    message. `reference` is the id of the chunk that holds the whole message, for opening it (empty: the message is in
    another thread).
    """

    thread_id: str
    seq: int
    n: int
    text: str
    speaker: str = ""
    prefix: str = ""
    note: str = ""
    request: bool = False
    binds: bool = False
    stands: bool = False
    reference: str = ""
    pinned: bool = False
    begins_line: bool = False

    @property
    def place(self) -> Place:
        """Identity of the statement."""
        return self.thread_id, self.seq, self.n


def fit_statements(
    statements: Sequence[Weighed], room: int | None, counter: TokenCounter, *, request_room: int | None = None
) -> list[Weighed]:
    """Return the statements that fit, in chronological order; the one at which the room ends may be cut.

    `statements` are ordered by rank, the most important first. Those of the request being worked on take up to
    `request_room` tokens of their own (default: they share the room); all others take up to `room` (`None`: all fit).
    """
    if room is None:
        return sorted(statements, key=_statement_order)
    request = _in_order_of_need([one for one in statements if one.request])
    rest = [one for one in statements if not one.request]
    if request_room is None:
        return sorted(_fitting_statements([*request, *rest], room, counter), key=_statement_order)
    return sorted(
        [*_fitting_statements(request, request_room, counter), *_fitting_statements(rest, room, counter)],
        key=_statement_order,
    )


def tokens_of(one: Weighed, counter: TokenCounter) -> int:
    """Return the maximum number of tokens that a statement takes in the block."""
    said = f"{one.prefix} {one.text} {one.note}" if one.prefix or one.note else one.text
    said = said.replace("\n", INDENTED)
    return FRAME_TOKENS + counter.count(said) + (counter.count(one.speaker) + 1 if one.speaker else 0)


def lines_of(statements: Sequence[Weighed]) -> list[StandingLine]:
    """Return one item per message from chronological statements; each item refers to the event of its message."""
    lines: list[StandingLine] = []
    start = 0
    for end in range(1, len(statements) + 1):
        first = statements[start]
        if end == len(statements) or not _is_of(first, statements[end]):
            lines.append(StandingLine(_message_line(statements[start:end]), first.thread_id, first.seq, is_part=True))
            start = end
    return lines


def _is_of(first: Weighed, one: Weighed) -> bool:
    return (one.thread_id, one.seq, one.pinned) == (first.thread_id, first.seq, first.pinned)


def _message_line(statements: Sequence[Weighed]) -> str:
    """Join the statements of one message in their order, with a gap mark where statements are left out."""
    said, after = "", statements[0].n - 1
    for one in statements:
        if one.n != after + 1:
            said += f" {GAP} "
        elif said:
            said += "\n" if one.begins_line else " "
        said += " ".join(filter(None, (one.prefix, one.text)))
        after = one.n
    notes = [one.note if len(statements) == 1 else _about(one) for one in statements if one.note]
    body = " ".join([said, *dict.fromkeys(notes)])
    if statements[0].speaker:  # no line may look as if another speaker had said it
        return f"- {statements[0].speaker}: {body}".replace("\n", INDENTED)
    return "- " + body.replace("\n- ", f"{INDENTED}- ")


def _about(one: Weighed) -> str:
    """Return the note with the beginning of the statement that it concerns, to distinguish several statements."""
    return f'(on "{" ".join(one.text.split()[:4])} {GAP}" {one.note.strip("()")})'


def _statement_order(one: Weighed) -> tuple[bool, int, int]:
    return not one.thread_id, one.seq, one.n


def _in_order_of_need(request: Sequence[Weighed]) -> list[Weighed]:
    """Order a request's statements: the first and the last, then the binding ones, then the others as written."""
    ordered = sorted(request, key=lambda one: one.n)
    edges = [*ordered[:1], *ordered[1:][-1:]]
    binding = [one for one in ordered[1:-1] if one.binds]
    return [*edges, *binding, *(one for one in ordered[1:-1] if not one.binds)]


def _fitting_statements(statements: Sequence[Weighed], room: int, counter: TokenCounter) -> list[Weighed]:
    found: list[Weighed] = []
    left = room
    for one in statements:
        size = tokens_of(one, counter)
        if size > left:
            cut = _cut_statement(one, left, counter)
            return [*found, cut] if cut is not None else found
        found.append(one)
        left -= size
    return found


def _cut_statement(one: Weighed, room: int, counter: TokenCounter) -> Weighed | None:
    """Return the beginning and end of a statement in at most `room` tokens, or `None` if too little would remain."""
    left = (
        room - (tokens_of(one, counter) - counter.count(one.text)) - counter.count(_omission_mark(one, len(one.text)))
    )
    if left < CUT_TOKENS_MIN:
        return None
    chars = _longest(lambda n: counter.count(" ".join(_ends(one.text, n))), left, len(one.text))
    head, tail = _ends(one.text, chars)
    gone = len(one.text) - len(head) - len(tail)
    return msgspec.structs.replace(one, text=f"{head} {_omission_mark(one, gone)} {tail}".rstrip())


def _ends(text: str, chars: int) -> tuple[str, str]:
    """Return the beginning and the end of a text, together at most `chars` characters."""
    head = int(chars * HEAD_SHARE)
    return text[:head].rstrip(), text[len(text) - (chars - head) :].lstrip()


def _omission_mark(one: Weighed, chars: int) -> str:
    opened = f': open("{one.reference}")' if one.reference else ""
    return f"[{GAP} {chars:,} more characters{opened}]"


def _longest(size: Callable[[int], int], most: int, end: int) -> int:
    low, high = 0, end
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(middle) <= most else (low, middle - 1)
    return low


class RankedBlock(StandingBlock, frozen=True, kw_only=True):
    """A standing block whose statements are selected by rank; `lines` are those that fit into a room."""

    weighed: tuple[Weighed, ...] = ()

    @classmethod
    def whole(cls, name: str, heading: str, weighed: Sequence[Weighed]) -> "RankedBlock":
        """Return the block with all statements, which are given in order of rank."""
        return cls(
            name=name,
            heading=heading,
            lines=tuple(lines_of(sorted(weighed, key=_statement_order))),
            weighed=tuple(weighed),
        )

    def within(
        self,
        room: int | None,
        counter: TokenCounter,
        *,
        shown: Collection[tuple[str, int]] = frozenset(),
        request_room: int | None = None,
    ) -> "RankedBlock":
        """Return the block in at most `room` tokens, without the messages in `shown` (thread and seq)."""
        offered = [one for one in self.weighed if one.pinned or (one.thread_id, one.seq) not in shown]
        left = None if room is None else max(0, room - counter.count(self.heading))
        held = fit_statements(offered, left, counter, request_room=request_room)
        return msgspec.structs.replace(self, lines=tuple(lines_of(held)), weighed=tuple(held))


BRIEF_SHARE = 0.25
"""Share of the room that the brief may take."""
BRIEF_MIN = 300
"""Tokens that the brief may take even of a small room, up to `BRIEF_SHARE_MAX` of it."""
BRIEF_SHARE_MAX = 0.3
PINNED_SINCE = "Pinned since:"
HEADING_TOKENS = 8
"""Approximate tokens of a message in addition to its heading and lines."""


class OfferedBrief(msgspec.Struct, frozen=True):
    """The brief of a thread as offered to a window. It does not repeat what the window shows."""

    block: RankedBlock
    thread_id: str
    share: float = BRIEF_SHARE
    least: int = BRIEF_MIN

    def beside_recall(self) -> "OfferedBrief":
        """Return a copy with half of the room, for contexts with recall.

        A question finds what it needs of the rest.
        """
        return msgspec.structs.replace(self, share=self.share / 2, least=self.least // 2)

    def within(self, room: int, counter: TokenCounter) -> "RoomyBrief":
        """Return the brief limited to its share of `room` tokens."""
        cap = max(int(room * self.share), min(self.least, int(room * BRIEF_SHARE_MAX)))
        own = [one for one in self.block.weighed if one.pinned or not one.request or one.binds]
        sized = [(self._since(one), tokens_of(one, counter)) for one in own]
        heading = counter.count(self.block.heading) + HEADING_TOKENS
        sized.append((min((seq for seq, _ in sized), default=0), heading))
        return RoomyBrief(
            msgspec.structs.replace(self.block, weighed=tuple(own)), self.thread_id, cap, Front.of(sized, cap)
        )

    def whole(self, shown: Collection[int], counter: TokenCounter) -> RankedBlock | None:
        """Return all statements except those of messages shown whole, or `None` if nothing remains."""
        block = self.block.within(None, counter, shown=frozenset((self.thread_id, seq) for seq in shown))
        return block if block.lines else None

    def _since(self, one: Weighed) -> int:
        """Return the seq such that a window beginning after it does not show the statement.

        -1 for a pin or a statement of another thread, which no window shows.
        """
        return -1 if one.pinned or one.thread_id != self.thread_id else one.seq


class RoomyBrief(msgspec.Struct, frozen=True):
    """A brief, its token limit `cap`, and in `front` its tokens by the seqs of its statements.

    The message being worked on is in the window or in front of it. The brief repeats only its binding statements, and
    only if that message is cut.
    """

    block: RankedBlock
    thread_id: str
    cap: int
    front: Front

    def beside(self, shown: Collection[int], counter: TokenCounter) -> RankedBlock | None:
        """Return the statements by rank, without those of messages shown whole, or `None` if nothing remains."""
        said = frozenset((self.thread_id, seq) for seq in shown)
        block = self.block.within(self.cap - HEADING_TOKENS, counter, shown=said)
        return block if block.lines else None

    def pinned_since(self, known: Collection[Place], counter: TokenCounter) -> RankedBlock | None:
        """Return the pins that are not yet `known`, within the same cap, or `None` without any."""
        pins = [one for one in self.block.weighed if one.pinned and one.place not in known]
        if not pins:
            return None
        block = RankedBlock.whole(self.block.name, PINNED_SINCE, pins).within(self.cap - HEADING_TOKENS, counter)
        return block if block.lines else None
