"""Passages read back from the events that hold them."""

from collections.abc import Collection
from datetime import datetime

import msgspec

from memory_engine.clock import to_datetime
from memory_engine.log import decode_row
from memory_engine.reading import LogReader
from memory_engine.recall.passages import PLACES_BITS, Extractors, Text
from memory_engine.records import StoredEvent

_N_MASK = (1 << PLACES_BITS) - 1


class Shown(msgspec.Struct, frozen=True):
    """A passage with its text, and the event that it is of."""

    text: Text
    at_us: int
    event: StoredEvent
    n: int

    @property
    def at(self) -> datetime:
        """When it was said."""
        return to_datetime(self.at_us)

    def embedded(self) -> str:
        """As it is embedded: after when it was said, by whom, and its title. Models find by all of these."""
        at = self.at
        when = f"{at.hour % 12 or 12}:{at:%M} {'am' if at.hour < 12 else 'pm'} on {at.day} {at:%B}, {at.year}"
        who, title = self.text.speaker or self.text.role, self.text.about
        return f"[{when}] {f'{who}: ' if who else ''}{f'{title}: ' if title else ''}{self.text.text}"


async def shown(reader: LogReader, extractors: Extractors, thread_id: str, places: Collection[int]) -> dict[int, Shown]:
    """The passages at these places. A place of no passage is left out. Raises `IntegrityError`."""
    rows = await reader.rows_at(thread_id, {place >> PLACES_BITS for place in places})
    texts: dict[int, tuple[Text, ...]] = {}
    for seq, stored in rows.items():
        event, _ = decode_row(thread_id, stored, reader.registry)
        texts[seq] = extractors.extract(event, seq).texts
    found: dict[int, Shown] = {}
    for place in places:
        seq, n = place >> PLACES_BITS, place & _N_MASK
        if n < len(texts.get(seq, ())):
            stored, text = rows[seq], texts[seq][n]
            happened = stored.recorded_at_us if stored.occurred_at_us is None else stored.occurred_at_us
            found[place] = Shown(text, happened if text.at_us is None else text.at_us, stored, n)
    return found
