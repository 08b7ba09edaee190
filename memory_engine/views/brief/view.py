"""The handle of the brief: people's statements in a thread, those of them that still apply, and what is pinned."""

from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Literal, overload

import msgspec
from attrs import frozen

from memory_engine.context.brief_block import Weighed
from memory_engine.core.arguments import checked_count, checked_flag, checked_text
from memory_engine.core.chunks import Chunk
from memory_engine.core.excerpts import one_line
from memory_engine.core.origins import Speaker, at_least, origin_since_spoken
from memory_engine.core.records import Receipt
from memory_engine.core.state import State
from memory_engine.core.tokens import recorded_tokens
from memory_engine.errors import BriefFull, InvalidEvent, UnknownPin
from memory_engine.runtime.handle import PastHandle, ThreadHandle
from memory_engine.store.reader import MomentLike
from memory_engine.views.brief.events import BriefPinned, BriefUnpinned, PinOrigin
from memory_engine.views.brief.fold import PINS, PinRow
from memory_engine.views.brief.reading import parents_of, talk_of
from memory_engine.views.brief.standing import Judged, closed_of, first_of, open_of, spent_of
from memory_engine.views.brief.talk import AgentReport, Status, Talk, TalkMessage, TalkStatement

if TYPE_CHECKING:
    from memory_engine.reports import Line

PINS_MAX = 24
"""Maximum number of pins a thread may have: more would crowd out what people said."""
PIN_TOKENS_MAX = 400
"""Maximum number of estimated tokens of one pin."""
PINS_TOKENS_MAX = 2_000
"""Maximum number of estimated tokens of all pins of a thread."""
SHOWN_MAX = 1_000
"""Maximum number of statements of closed messages that are considered for a context."""

Kind = Literal["forbids", "binds", "prefers", "corrects", "asks", "says", "material", "pin", "report"]
"""Form of a statement; or its source: pasted `material`, a `pin`, or the agent's `report`."""
Origin = Literal["person", "parent", "agent", "tool"]
"""Origin: a person in this thread, the thread that started it, the agent, or the agent after it read from a tool."""


class BriefStatement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """A statement of the brief, word for word.

    It is statement `n` of the message at `seq` of thread `thread_id`, at characters `start` to `end`; `begins_line`: it
    begins a line there. `by` is the seq of the event that spent or superseded it (0: none). `asked` is the agent's
    question that it answers, `later` the statement that supersedes it. `worth` orders current statements. `request`
    marks those of the current request, `first` those of the first one.
    """

    text: str
    seq: int
    n: int
    thread_id: str
    speaker: str = ""
    kind: Kind = "says"
    status: Status = "stands"
    by: int = 0
    origin: Origin = "person"
    pinned: bool = False
    start: int = 0
    end: int = 0
    begins_line: bool = False
    worth: float = 0.0
    request: bool = False
    first: bool = False
    asked: str = ""
    later: str = ""


@frozen(kw_only=True)
class Brief(Sequence[BriefStatement]):
    """The statements of a thread as of `seq`, ordered by rank.

    The current request comes first, then people's pins, the first request, and all other statements by worth. Then come
    the agent's own reports of its work, and last the spent statements.
    """

    thread_id: str
    seq: int
    statements: tuple[BriefStatement, ...] = ()

    @overload
    def __getitem__(self, at: int) -> BriefStatement: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[BriefStatement, ...]: ...
    def __getitem__(self, at: int | slice) -> BriefStatement | tuple[BriefStatement, ...]:
        """Return a statement, or a slice of them."""
        return self.statements[at]

    def __len__(self) -> int:
        return len(self.statements)

    def __iter__(self) -> Iterator[BriefStatement]:
        return iter(self.statements)

    @property
    def standing(self) -> tuple[BriefStatement, ...]:
        """The statements that are not spent, in order of time."""
        return tuple(sorted((one for one in self if one.status != "spent"), key=_time_order))

    def __str__(self) -> str:
        from memory_engine.reports import plain

        return plain(self.lines())

    def lines(self, width: int = 120) -> "Iterator[Line]":
        """Yield a heading with the counts, then one line for each statement that is not spent, in order of time."""
        from memory_engine.reports import line

        shown = self.standing
        yield line(f"{len(shown)} of {len(self)} statements still stand in {self.thread_id} at {self.seq}", "bold")
        for one in shown:
            about = " ".join(filter(None, (one.kind, one.speaker, "superseded" if one.status == "superseded" else "")))
            yield line(one_line(f"{one.seq:>6} {about}: {one.text}", width))

    def as_data(self) -> dict[str, object]:
        """Return all fields as data for JSON."""
        return {
            "thread": self.thread_id,
            "seq": self.seq,
            "statements": [msgspec.structs.asdict(one) for one in self.statements],
        }


class BriefView:
    """People's statements in one thread, and which of them still apply."""

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    async def read(self, *, at: MomentLike | None = None) -> Brief:
        """Return the brief, now or as of a moment, without what was forgotten since.

        The first read of a thread reads what people and the agent said from the log; later reads only what is new.
        Raises `SeqNotInLog`, `EventNotFound`, `ThreadNotFound`.
        """
        upto = await self._thread.upto(at)
        return await brief_at(self._thread, await self._thread.last_seq() if upto is None else upto, upto)

    async def pin(self, text: str | Chunk, *, by_agent: bool = False, agent_id: str = "") -> Receipt:
        """Keep a text, or the text of a chunk, in the brief of every context until it is unpinned.

        The pin counts as a person's. With `by_agent` it is marked as the agent's, and gets the least trusted origin
        among the chunks since a person last spoke. Raises `BriefFull` if it is too long, or if the thread's pins would
        be too many or too long together, `InvalidEvent` if the text is empty, and the errors of `dispatch`.
        """
        content, sources = (text.text, (text.id,)) if isinstance(text, Chunk) else (checked_text("text", text), ())
        if not content.strip():
            raise InvalidEvent(BriefPinned.event_type, "content", "a pin says something; this one is empty")
        rows = await self._thread.rows(PINS)
        texts = [row.text for _, row in rows.items()]
        _check_room(self._thread.id, texts, content)
        origin = origin_of(await self._thread.state()) if checked_flag("by_agent", by_agent) else "person"
        return await self._thread.dispatch(
            BriefPinned(content=content, sources=sources, origin=origin, agent_id=agent_id)
        )

    async def unpin(self, pin: int | Receipt | BriefStatement, *, reason: str = "") -> Receipt:
        """Remove a pin, given its receipt, its statement or its seq. Raises `UnknownPin` if it is not in the thread."""
        seq = pin.seq if isinstance(pin, Receipt | BriefStatement) else checked_count("pin", pin)
        self._thread.kernel.check_writable("unpinning")
        rows = await self._thread.rows(PINS)
        known = tuple(row.seq for _, row in rows.items())
        if seq not in known:
            raise UnknownPin(self._thread.id, seq, known)
        return await self._thread.dispatch(BriefUnpinned(pin=seq, reason=checked_text("reason", reason)))


async def brief_at(thread: ThreadHandle, seq: int, upto: int | None, *, to_show: bool = False) -> Brief:
    """Return the brief of a thread at `seq`: as of the past if `upto` is given, else the current one.

    With `to_show` it holds only what a context may show: no spent statements of closed messages but those of the first
    request, and of a long talk only the most valuable statements.
    """
    inherited = [found for parent in await parents_of(thread) for found in await _inherited(parent)]
    pins = [_pinned(thread.id, row) for row in await _pin_rows(thread, upto)]
    talk = await talk_of(thread, seq, is_past=upto is not None)
    standing = nlargest(SHOWN_MAX, closed_of(talk), key=_need) if to_show else closed_of(talk)
    judged = [*open_of(talk), *standing, *(first_of(talk) if to_show else spent_of(talk))]
    own = [_statement(talk, one, thread.id) for one in judged]
    reports = [said for one in talk.reports for said in _reported(thread.id, one)]
    return Brief(thread_id=thread.id, seq=seq, statements=tuple(sorted([*pins, *own, *reports, *inherited], key=_rank)))


def _need(one: Judged) -> tuple[bool, bool, float, int, int]:
    """Return a sort key: the greater, the more a context needs this statement of a closed message."""
    seq, n = one.said.key
    return one.first, one.ruling.status == "stands", one.ruling.worth, seq, -n


async def _pin_rows(thread: ThreadHandle, upto: int | None) -> list[PinRow]:
    """Return the pins of a thread. A thread that never had one is recognized without reading rows."""
    if upto is None and BriefPinned.event_type not in (await thread.followed()).head.marks:
        return []
    return [row for _, row in (await thread.rows(PINS, at=upto)).items()]


def _check_room(thread_id: str, pinned: Sequence[str], text: str) -> None:
    """Raise `BriefFull` if another pin would be too many or too long."""
    size, held = recorded_tokens(text), sum(map(recorded_tokens, pinned))
    if len(pinned) >= PINS_MAX:
        raise BriefFull(thread_id, "pins", len(pinned) + 1, PINS_MAX)
    if size > PIN_TOKENS_MAX:
        raise BriefFull(thread_id, "tokens in one pin", size, PIN_TOKENS_MAX)
    if held + size > PINS_TOKENS_MAX:
        raise BriefFull(thread_id, "tokens in all pins", held + size, PINS_TOKENS_MAX)


def origin_of(state: State) -> PinOrigin:
    """Return the least trusted origin among the chunks since a person last spoke: a pin may repeat any of them."""
    return "agent" if at_least(origin_since_spoken(state.newest()), Speaker.AGENT) else "tool"


async def _inherited(parent: PastHandle) -> list[BriefStatement]:
    """Return the statements and people's pins that applied in the parent's thread, marked as the parent's."""
    talk = await talk_of(parent, parent.seq, is_past=True)
    standing = [one for one in (*open_of(talk), *closed_of(talk)) if one.ruling.status == "stands" or one.request]
    found = [_statement(talk, one, parent.id) for one in standing]
    # what an agent pinned may repeat a tool: it goes no further
    pins = [row for _, row in (await parent.rows(PINS, at=parent.seq)).items() if row.origin == "person"]
    found += [_pinned(parent.id, row) for row in pins]
    return [msgspec.structs.replace(one, origin="parent", request=False, first=False) for one in found]


def _reported(thread_id: str, report: AgentReport) -> list[BriefStatement]:
    return [
        BriefStatement(text=one.text, seq=report.seq, n=n, thread_id=thread_id, kind="report", origin="agent",
                       start=one.start, end=one.end)
        for n, one in enumerate(report.statements)
    ]  # fmt: skip


def _statement(talk: Talk, one: Judged, thread_id: str) -> BriefStatement:
    said, ruling = one.said, one.ruling
    message = talk.message(said)
    return BriefStatement(
        text=said.statement.text,
        seq=message.seq,
        n=said.n,
        thread_id=thread_id,
        speaker=_speaker(talk, message),
        kind=_statement_kind(said),
        status=ruling.status,
        by=ruling.by,
        start=said.statement.start,
        end=said.statement.end,
        begins_line=said.statement.begins_line,
        worth=round(ruling.worth, 4),
        request=one.request,
        first=one.first,
        asked=message.asked if said.leans else "",
        later=said.later if ruling.status == "superseded" else "",
    )


def _speaker(talk: Talk, message: TalkMessage) -> str:
    """Return the speaker's name if there are several; the agent that leads is always named."""
    if message.by_agent:
        return message.speaker or "the agent that leads"
    return message.speaker if len(talk.speakers) > 1 else ""


def _statement_kind(said: TalkStatement) -> Kind:
    force = said.force
    if said.statement.material:
        return "material"
    if force.forbids:
        return "forbids"
    if force.corrects:
        return "corrects"
    if force.binds:
        return "binds"
    if force.prefers:
        return "prefers"
    return "asks" if said.asks else "says"


def _pinned(thread_id: str, row: PinRow) -> BriefStatement:
    return BriefStatement(
        text=" ".join(row.text.split()),
        seq=row.seq,
        n=0,
        thread_id=thread_id,
        speaker=row.agent_id,
        kind="pin",
        origin=row.origin,
        pinned=True,
        worth=2.0 if row.origin == "person" else 1.0,
    )


def _rank(one: BriefStatement) -> tuple[int, float, bool, int, int]:
    return _tier(one), -one.worth, one.origin == "parent", -one.seq, one.n


def _tier(one: BriefStatement) -> int:
    if one.request:
        return 0
    if one.pinned and one.origin == "person":
        return 1
    if one.first and one.kind != "material":
        return 2
    if one.status == "spent":
        return 6
    if one.kind == "report":
        return 5
    return 4 if one.status == "superseded" else 3


def _time_order(one: BriefStatement) -> tuple[bool, int, int]:
    return one.origin != "parent", one.seq, one.n


def weighed(brief: Brief) -> tuple[Weighed, ...]:
    """Return what the block may show, by rank: statements that are not spent, the current request and the first one."""
    shown = (one for one in brief if one.status != "spent" or one.request or (one.first and one.kind != "material"))
    return tuple(_weighed_statement(one, brief.thread_id) for one in shown)


def _weighed_statement(one: BriefStatement, thread_id: str) -> Weighed:
    return Weighed(
        thread_id=one.thread_id,
        seq=one.seq,
        n=one.n,
        text=one.text,
        speaker=_speaker_label(one),
        prefix=f'(you asked: "{one.asked}")' if one.asked else "",
        note=f"(later: {one.later})" if one.later else "",
        request=one.request,
        stands=one.status == "stands",
        binds=one.kind in ("forbids", "binds", "corrects", "prefers"),
        begins_line=one.begins_line,
        reference=f"{one.seq}.0" if one.thread_id == thread_id and not one.pinned else "",
        pinned=one.pinned,
    )


def _speaker_label(one: BriefStatement) -> str:
    if one.pinned and one.origin == "parent":
        return "Pinned for the agent that started you"
    if one.pinned:
        return {"person": "Pinned", "agent": "Pinned by you"}.get(one.origin, "Pinned by you after reading a tool")
    if one.origin == "parent":
        return f"{one.speaker or 'A person'}, to the agent that started you"
    if one.kind == "report":
        return "You said"
    return one.speaker


def heading(brief: Brief) -> str:
    """Say whose words the block quotes: people's, by their names if several speak, and the agent's if there are any."""
    names = sorted({one.speaker for one in brief if one.origin == "person" and one.speaker and not one.pinned})
    who = names if len(names) > 1 else ["the user"]
    if any(_is_own(one) for one in brief.standing):
        who = [*who, "you"]
    named = ", ".join(who[:-1]) + f" and {who[-1]}" if len(who) > 1 else who[0]
    return f"What {named} said and what still holds of it, in {'these' if who[-1] == 'you' else 'their'} words:"


def _is_own(one: BriefStatement) -> bool:
    """Return True for a line of the agent itself: a report of its work, or what it pinned."""
    return one.kind == "report" or (one.pinned and one.origin not in ("person", "parent"))
