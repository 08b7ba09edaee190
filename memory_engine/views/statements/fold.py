"""The view of statements: what was decided of pairs."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.events.roles import Seq
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, Rows, seq_key
from memory_engine.recall.index import DecidedPair
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.views.statements.events import StatementsCompared, Verdict


class PairRuling(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One decision on a pair, of the event at `seq`. `by` is a person, if one decided."""

    verdict: Verdict
    seq: int
    event_id: str
    model: str = ""
    prompt: int = 0
    by: str = ""


class PairRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """Two statements, each the `n`-th passage of the event at a seq, and what was decided of them, oldest first."""

    older: Seq
    newer: Seq
    older_n: int = 0
    newer_n: int = 0
    rulings: tuple[PairRuling, ...] = ()

    def ruling(self, upto: int = 0) -> PairRuling | None:
        """Return the decision in force as of a seq (0: now): the last one, but a person's before any model's."""
        known = [one for one in self.rulings if not upto or one.seq <= upto]
        return max(known, key=lambda one: (not one.model, one.seq), default=None)


def pair_key(older: int, older_n: int, newer: int, newer_n: int) -> str:
    """Return the key of a pair's row."""
    return f"{seq_key(older)}.{older_n}-{seq_key(newer)}.{newer_n}"


class StatementsFold:
    """The pairs of statements that were compared."""

    name = "statements"
    version = 1
    mode: ProjectionMode = "inline"
    lazy = False
    row = PairRow
    events: tuple[type[Event], ...] = (StatementsCompared, MemoryForget)

    def apply(self, rows: Rows[PairRow], event: RecordedEvent) -> None:
        """Change the rows by one event."""
        match event.event:
            case StatementsCompared() as compared:
                _add(rows, compared, event)
            case MemoryForget() as forget:
                _drop_forgotten(rows, forget.origins())


def _add(rows: Rows[PairRow], compared: StatementsCompared, event: RecordedEvent) -> None:
    place = compared.older, compared.older_n, compared.newer, compared.newer_n
    if place[:2] == place[2:] or not all(0 < seq < event.seq for seq in place[::2]):
        return  # no two statements of this thread
    row = rows.get(pair_key(*place)) or PairRow(place[0], place[2], place[1], place[3])
    ruling = PairRuling(compared.verdict, event.seq, event.id, compared.model, compared.prompt, compared.by)
    rows.put(pair_key(*place), replace(row, rulings=(*row.rulings, ruling)))


def _drop_forgotten(rows: Rows[PairRow], gone: frozenset[int]) -> None:
    """Drop the decisions on forgotten statements, and those that are forgotten themselves."""
    for key, row in rows.items():
        kept = tuple(one for one in row.rulings if one.seq not in gone)
        if not kept or row.older in gone or row.newer in gone:
            rows.drop(key)
        elif kept != row.rulings:
            rows.put(key, replace(row, rulings=kept))


STATEMENTS = StatementsFold()


async def read_decisions(kernel: Kernel, thread_id: str, upto: int) -> Sequence[DecidedPair]:
    """See `recall.index.StatementDecisions`."""
    rows = await ThreadHandle(kernel, thread_id).rows(STATEMENTS)
    return list(_decided(rows.items(), upto))


def _decided(rows: Iterator[tuple[str, PairRow]], upto: int) -> Iterator[DecidedPair]:
    for _, row in rows:
        ruling = row.ruling(upto)
        if ruling is not None and ruling.verdict != "unclear":
            older, newer = (row.older, row.older_n), (row.newer, row.newer_n)
            yield DecidedPair(older, newer, ruling.verdict == "replaced", ruling.event_id)
