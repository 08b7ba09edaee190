"""A summary's lines of work: records grouped by file, command and test run, and quotations from sources.

Ranked by what matters most for continuing: first what failed last, then what was changed, then what was read.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from memory_engine.compactors.extractive.entries import LINE_FRAME_CHARS, Line
from memory_engine.compactors.extractive.quotes import quote_of
from memory_engine.compactors.extractive.usage import Action, InputReading
from memory_engine.compactors.extractive.work import Rank, WorkFact
from memory_engine.context.work_lines import FileLine, WorkLine, WorkRecords, work_line
from memory_engine.core.sections import FILES, QUOTED, TESTS
from memory_engine.core.slices import Steps
from memory_engine.language.sentences import clean

QUOTES_SHARE_MAX = 0.25
"""Share of the lines' budget up to which quotations go before less urgent lines."""


class RankedLine(msgspec.Struct, frozen=True, gc=False):
    """A line, how urgent it is, and its place in the order in which things happened."""

    line: Line
    rank: float
    """A `Rank`, or less for a line that the caller asked for."""
    place: int


def work_lines(reading: InputReading, earlier: Sequence[Line]) -> Steps[tuple[list[RankedLine], list[Line]]]:
    """Return every line of work, and the earlier lines of another kind or an unknown form."""
    records, ranks, others = WorkRecords(), dict[tuple[str, str], Rank](), list[Line]()
    quotes: dict[str, RankedLine] = {}

    def note(section: str, line: WorkLine, rank: Rank, sources: Sequence[str]) -> None:
        key = section, line.key
        ranks[key] = min(ranks.get(key, rank), rank)
        records.add(section, line, sources)

    for line in (msgspec.structs.replace(line, text=clean(line.text)) for line in earlier):
        if not line.text:
            continue
        record = work_line(line.section, line.text)
        if record is not None:
            note(line.section, record, _rank(line.section, record), line.sources)
        elif line.section == QUOTED:
            quotes[line.text] = RankedLine(line, Rank.RULE, -1)
        else:
            others.append(line)
        yield
    for action in reading.actions:
        facts = reading.work.get(action, ())
        for fact in facts:
            note(fact.section, fact.line, fact.rank, _action_sources(reading, action))
        for quote in _quotes(reading, action, facts):
            quotes[quote.line.text] = quote
        yield
    kept = records.lines()
    found = [
        RankedLine(Line(one.section, one.line.text, one.sources), ranks[one.section, one.line.key], place)
        for place, one in enumerate(kept)
    ]
    return [*found, *quotes.values()], others


def _rank(section: str, line: WorkLine) -> Rank:
    """Return an earlier line's rank."""
    if section == TESTS:
        return Rank.TEST
    if isinstance(line, FileLine):
        return Rank.CHANGE if line.edits or line.status else Rank.FAILURE if line.edit_failure else Rank.READ
    return Rank.FAILURE if line.has_failed else Rank.EFFECT


def _action_sources(reading: InputReading, action: Action) -> tuple[str, ...]:
    places = [place for place in (action.call, action.outcome) if place >= 0]
    return tuple(dict.fromkeys(reading.entries[place].id for place in places))


def _quotes(reading: InputReading, action: Action, facts: Iterable[WorkFact]) -> Iterable[RankedLine]:
    """Yield quotations from a source that the call read, if it is prose."""
    read = [
        fact.line for fact in facts if fact.section == FILES and isinstance(fact.line, FileLine) and fact.line.is_read
    ]
    if len(read) == 1 and action.outcome >= 0:
        quote = quote_of(read[0].path, reading.heard[action.outcome].text)
        if quote is not None:
            line = Line(QUOTED, quote.text, _action_sources(reading, action))
            yield RankedLine(line, Rank.RULE if quote.binds else Rank.REMARK, action.outcome)


def within(lines: Sequence[RankedLine], left: float, whole: float, size: Callable[[str], int]) -> list[Line]:
    """Return the most urgent lines that fit `left` characters of a whole budget; of equals, the latest first.

    Quotations beyond their share take what the others leave. The result keeps the order given.
    """
    left_for_quotes = whole * QUOTES_SHARE_MAX
    chosen: set[int] = set()
    waiting: list[tuple[int, float]] = []
    for n in sorted(range(len(lines)), key=lambda n: (lines[n].rank, -lines[n].place)):
        cost = size(lines[n].line.text) + LINE_FRAME_CHARS
        is_quote = lines[n].line.section == QUOTED
        if is_quote and cost > left_for_quotes:
            waiting.append((n, cost))
        elif cost <= left:
            chosen.add(n)
            left -= cost
            left_for_quotes -= cost * is_quote
    for n, more in waiting:
        if more <= left:
            chosen.add(n)
            left -= more
    return [one.line for n, one in enumerate(lines) if n in chosen]


def cost_of(lines: Iterable[Line], size: Callable[[str], int]) -> float:
    """Return the characters that lines take."""
    return sum(size(line.text) + LINE_FRAME_CHARS for line in lines)
