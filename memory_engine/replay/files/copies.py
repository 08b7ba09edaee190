"""Which events repeat what others said: as far as they say so themselves."""

from attrs import define, field

from memory_engine.chunks import Chunk
from memory_engine.events import (
    CycleStarted,
    Event,
    ExchangeFinished,
    MemoryCompacted,
    MemoryForget,
    PatternApproved,
    PatternProposed,
    PromotionDecided,
    ScratchpadWritten,
    SummaryRolled,
    ToolResultCached,
)


@define
class Hidden:
    """What was taken out of a log so far, while its events go by in order.

    `seqs` and `events` (their ids) are of events, `chunks` of what came of them, `calls` of what they called for or
    answered. `forgotten` are chunks that go by themselves. `thread_id` is of the log.
    """

    thread_id: str
    seqs: set[int] = field(factory=set)
    events: set[str] = field(factory=set)
    chunks: set[str] = field(factory=set)
    calls: set[str] = field(factory=set)
    forgotten: set[str] = field(factory=set)
    _cycle: int = 0
    _asked: dict[int, int] = field(factory=dict)
    _exchanges: set[int] = field(factory=set)

    def forget(self, forgotten: MemoryForget) -> None:
        """Take out what a forgetting names, from the beginning of the log on."""
        self.seqs.update(forgotten.seqs)
        self.forgotten.update(forgotten.chunk_ids)
        self.calls.update(forgotten.call_ids)

    def add(self, seq: int, event_id: str, chunks: tuple[Chunk, ...]) -> None:
        """An event was taken out, with all that came of it: its chunks, whole."""
        self.seqs.add(seq)
        self.events.add(event_id)
        if seq in self._asked:
            self._exchanges.add(self._asked[seq])
        for chunk in chunks:
            self.calls.update((chunk.call_id, *(call.id for call in chunk.calls)))
        self.calls.discard("")

    def is_repeated_by(self, event: Event, seq: int) -> bool:
        """Whether an event names something of it as its source."""
        if not self.events.isdisjoint(_texts(getattr(event, "sources", ()))):
            return True
        if not self.seqs.isdisjoint(_numbers(getattr(event, "drawn_from", ()))):
            return True
        return self._is_source(event, seq)

    def _is_source(self, event: Event, seq: int) -> bool:
        match event:
            case CycleStarted(question_at=at):
                self._cycle = seq
                return _at(at, seq) in self.seqs
            case ExchangeFinished(answer_at=at, cycle=cycle):
                asked = self._asked[seq] = cycle or self._cycle
                if asked == self._cycle:
                    self._cycle = 0
                return _at(at, seq) in self.seqs or asked in self.seqs
            case SummaryRolled(covers=covers, base=base, insights=insights):
                return (
                    not self.seqs.isdisjoint((*covers, base))
                    or not self._exchanges.isdisjoint(covers)
                    or not self.chunks.isdisjoint(insights)
                )
            case MemoryCompacted(lines=lines):
                return any(not self.seqs.isdisjoint(line.seqs) for line in lines)
            case ToolResultCached(call_id=call_id):
                return call_id in self.calls
            case PatternProposed(source=source, line=line):
                return not self.seqs.isdisjoint((source, line))
            case PatternApproved(proposal=proposal):
                return proposal in self.seqs
            case ScratchpadWritten(read=read):
                return not self.chunks.isdisjoint(read)
            case PromotionDecided(snippet=snippet):
                return snippet in self.chunks
        return False


def _at(place: int, seq: int) -> int:
    """The seq that an event at `seq` means: -1 is the one before it, 0 is none."""
    return seq - 1 if place == -1 else place or -1


def _texts(value: object) -> tuple[str, ...]:
    """The texts of a field that an event of a stranger may hold anything in."""
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list | tuple) else ()


def _numbers(value: object) -> tuple[int, ...]:
    return tuple(one for one in value if isinstance(one, int)) if isinstance(value, list | tuple) else ()
