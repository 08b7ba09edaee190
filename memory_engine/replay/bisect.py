"""Finding the event after which something holds, by bisecting the log."""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from attrs import field, frozen

from memory_engine.core.arguments import checked_call
from memory_engine.core.cancellation import kept_time
from memory_engine.core.excerpts import number, of_event, one_line
from memory_engine.core.json_form import named
from memory_engine.core.records import RecordedEvent
from memory_engine.errors import InvalidExpression, NothingToBisect, PredicateFailed
from memory_engine.replay.data import event_as_data
from memory_engine.replay.diff import Diff, diff
from memory_engine.replay.verify import VerifyProgress
from memory_engine.reports import Column, Drawable, Line, Paper, line, table_lines
from memory_engine.runtime.handle import PastHandle

P = TypeVar("P", bound=PastHandle)
Predicate = Callable[[P], "bool | Awaitable[bool]"]
"""A question about the thread at a seq. It should be pure: same past, same answer."""


@frozen(kw_only=True)
class Bisection(Drawable):
    """The first event after which the predicate held, provided that it held from some event on.

    `asked` are the seqs examined and their answers, in order; `change` is the event's difference. If the predicate
    turns more than once, it is one of its turns to true.
    """

    event: RecordedEvent
    seq: int
    asked: tuple[tuple[int, bool], ...]
    change: Diff = field(repr=False)

    def drawn(self, paper: Paper) -> Iterator[Line]:
        """The event after which it holds, where it was asked, and what the event changed."""
        event = self.event
        head = f"it holds from event {self.seq} on: {event.type}, {event.recorded_at:%Y-%m-%d %H:%M:%S}"
        yield line(head, "bold")
        yield line("  " + one_line(of_event(event.event), paper.width - 2))
        yield from table_lines(
            [Column("STEP", right=True), Column("AFTER EVENT", right=True), Column("HOLDS")],
            [(str(n), number(seq), "yes" if held else "no") for n, (seq, held) in enumerate(self.asked, 1)],
        )
        yield from self.change.drawn(paper)

    def as_data(self) -> dict[str, object]:
        """As plain JSON values."""
        return {"seq": self.seq, "event": event_as_data(self.event), **named(self, "asked change")}


async def bisect(after: P, upto: P, predicate: Predicate[P], progress: VerifyProgress | None = None) -> Bisection:
    """The first event after `after` and up to `upto` after which the predicate holds.

    Calls it about as often as the number of events can be halved, and first at both ends. Raises `NothingToBisect`
    unless it is false at `after` and true at `upto`, `PredicateFailed` naming the seq where it raised, or where it took
    longer than `EngineConfig.call_timeout_s`.
    """
    checked_call("progress", progress)
    low, high = after.seq, upto.seq
    if after.id != upto.id:
        raise NothingToBisect(upto.id, low, high, f"the first is of thread {after.id!r}")
    if low >= high:
        raise NothingToBisect(upto.id, low, high, "there is no event between them")
    asked: list[tuple[int, bool]] = []

    async def holds(past: P) -> bool:
        held = await _ask(past, predicate)
        asked.append((past.seq, held))
        if progress is not None:
            progress(len(asked))
        return held

    if await holds(after):
        raise NothingToBisect(upto.id, low, high, f"it holds at {low} already")
    if not await holds(upto):
        raise NothingToBisect(upto.id, low, high, f"it does not hold at {high}")
    before, turned = after, upto
    while high - low > 1:
        middle = upto.then((low + high) // 2)
        if await holds(middle):
            high, turned = middle.seq, middle
        else:
            low, before = middle.seq, middle
    event = await turned.event()
    if event is None:
        raise NothingToBisect(upto.id, low, high, "the log ends before it")
    return Bisection(event=event, seq=high, asked=tuple(asked), change=await diff(before, turned))


async def _ask(past: P, predicate: Callable[[P], bool | Awaitable[bool]]) -> bool:
    try:
        answer = predicate(past)
        if inspect.isawaitable(answer):
            answer = await kept_time("the predicate", answer, past.kernel.config.call_timeout_s)
        return bool(answer)
    except InvalidExpression:
        raise
    except Exception as error:  # the boundary to user code: its errors are raised with the place
        raise PredicateFailed(past.id, past.seq, f"{type(error).__name__}: {error}") from error
