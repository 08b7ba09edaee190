"""What rewinds change in the index of passages."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from memory_engine.core.chain import decode_event
from memory_engine.core.records import StoredEvent
from memory_engine.core.rewinding import REWINDING, Hiding, Rewinds, difference
from memory_engine.store.passages import Extractors, PassageChange, PassageStep, passage_step
from memory_engine.store.reader import LogReader
from memory_engine.store.rewinds import rewinds_of


def parted(page: Sequence[StoredEvent]) -> Iterator[Sequence[StoredEvent]]:
    """A page in parts: each rewind is one of its own, since it changes what the events before it have written."""
    first = 0
    for n, stored in enumerate(page):
        if stored.type in REWINDING:
            if first < n:
                yield page[first:n]
            yield page[n : n + 1]
            first = n + 1
    if first < len(page):
        yield page[first:]


def is_rewind(part: Sequence[StoredEvent]) -> bool:
    """Whether a part of a page is a rewind."""
    return part[0].type in REWINDING


def hiding_at(known: Rewinds, seq: int) -> Hiding:
    """What the rewind at a seq changes in an index."""
    before, after = known.at(seq - 1), known.at(seq)
    return Hiding(after.gaps, difference(after, before, seq - 1), tuple(one for one in known.of_facts if one < seq))


def repeated(steps: Iterable[PassageStep], hiding: Hiding) -> list[PassageStep]:
    """What those of the steps end whose events are shown again."""
    return [
        structs.replace(one, rows=(), drops=(), drop_keys=())
        for one in steps
        if not one.only_adds and any(first <= one.seq <= last for first, last in hiding.returned)
    ]


async def rewinding_change(reader: LogReader, extractors: Extractors, thread_id: str, seq: int) -> PassageChange:
    """The change of the rewind at a seq."""
    hiding = hiding_at(await rewinds_of(reader, thread_id), seq)
    steps: list[PassageStep] = []
    for first, last in hiding.returned:
        async for stored in reader.walk(thread_id, after=first - 1, upto=last):
            event = decode_event(thread_id, stored, reader.registry)
            found = passage_step(extractors, thread_id, event, stored)
            steps += [found] if found is not None and not found.only_adds else []
    return PassageChange(seq - 1, seq, repeated(steps, hiding), hiding=hiding)
