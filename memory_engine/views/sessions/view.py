"""A session of a framework: its entries come back unchanged, and its state."""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec

from memory_engine.core.events.base import Event, TextPart
from memory_engine.core.records import NewEvent, Receipt
from memory_engine.projections.base import behind
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.records import Records, as_json
from memory_engine.views.sessions.events import QuotedText, SessionBegun, SessionEntryKept, SharedStateSet
from memory_engine.views.sessions.fold import (
    ENTRY,
    SESSION,
    SESSIONS,
    STATE,
    SessionEntryRow,
    SessionHead,
    StateRow,
    entry_key,
    shared_key,
)


class SessionEntry(msgspec.Struct, frozen=True):
    """A given entry, and the state that it set: its own, and by kind of its owner the state that others share."""

    id: str
    entry: dict[str, object]
    state: dict[str, object]
    shared: Mapping[str, dict[str, object]]


class Session:
    """The session that a thread holds."""

    def __init__(self, thread: ThreadHandle) -> None:
        self.thread = thread
        self._records = Records(thread, SESSIONS)

    async def head(self) -> SessionHead | None:
        """The last event of the session; `None` where the thread holds none, or is not there."""
        return await self._records.row(SessionHead, SESSION)

    async def begin(self, begun: SessionBegun, *, expected_seq: int) -> Receipt:
        """Begin it. Raises what `dispatch` raises."""
        return await self.thread.dispatch(begun, expected_seq=expected_seq)

    async def keep(
        self,
        kept: NewEvent,
        beside: Sequence[NewEvent],
        texts: Mapping[str, str],
        *,
        after: Iterable[NewEvent | Event] = (),
        expected_seq: int | None = None,
    ) -> int:
        """Keep an entry and its messages in one commit; the seq of the entry. `texts` are those in it, by pointer.

        `after` comes after it. Raises what `dispatch` raises.
        """
        new = quoting(kept, beside, texts)
        receipts = await self.thread.dispatch_all([*beside, new, *after], expected_seq=expected_seq)
        return receipts[len(beside)].seq

    async def entry_rows(self, limit: int | None = None) -> list[SessionEntryRow]:
        """The rows of the entries, the last `limit` of them."""
        return [row for _, row in await self._records.under(SessionEntryRow, ENTRY, limit, latest=True)]

    async def entry_rows_from(self, seq: int) -> list[SessionEntryRow]:
        """The row of the first entry at a seq or after it."""
        return [row for _, row in await self._records.between(SessionEntryRow, entry_key(seq), behind(ENTRY), 1)]

    async def entries(self, rows: Sequence[SessionEntryRow]) -> list[SessionEntry]:
        """The entries of these rows, unchanged. A text whose event was erased is empty."""
        events = await self._records.events({row.seq for row in rows})
        kept = {seq: cast("SessionEntryKept", event) for seq, event in events.items()}
        said = await self._records.events({seq + quote.back for seq, one in kept.items() for quote in one.quoted})
        found = []
        for row in rows:
            event = kept[row.seq]
            entry = json.loads(event.entry)
            for quote in event.quoted:
                for text in _event_texts(said.get(row.seq + quote.back)):
                    if _text_checksum(text) == quote.check:
                        _put_at_pointer(entry, quote.pointer, text)
            shared: dict[str, dict[str, object]] = {one.destination.kind: json.loads(one.state) for one in event.shared}
            found.append(SessionEntry(event.id, entry, json.loads(event.state), shared))
        return found

    async def state(self) -> dict[str, object]:
        """The session's own state."""
        return _state_values(await self._records.under(StateRow, STATE), STATE)

    async def value(self, key: str) -> object:
        """A value of the session's own state; `None` for none, or where the thread is not there."""
        row = await self._records.row(StateRow, STATE + key)
        return None if row is None else json.loads(row.value)

    async def has(self, key: str) -> bool:
        """Whether the session's own state has the key, with whatever value."""
        return await self._records.row(StateRow, STATE + key) is not None


def quoting(kept: NewEvent, beside: Sequence[NewEvent], texts: Mapping[str, str]) -> NewEvent:
    """An entry that does not repeat what the messages right before it say. `texts` are those in it, by pointer."""
    event = cast("SessionEntryKept", kept.event)
    entry = json.loads(event.entry)
    quoted = []
    for pointer, text in texts.items():
        back = _events_back(text, beside)
        if back and _put_at_pointer(entry, pointer, ""):
            quoted.append(QuotedText(pointer, back, _text_checksum(text)))
    whole = msgspec.structs.replace(event, entry=as_json(entry), quoted=tuple(quoted), messages=len(beside))
    return msgspec.structs.replace(kept, event=whole)


class Shared:
    """The state of an app in the thread of a user or an agent."""

    def __init__(self, thread: ThreadHandle, app: str) -> None:
        self.thread = thread
        self.app = app
        self._records = Records(thread, SESSIONS)

    async def state(self) -> dict[str, object]:
        """Its values by key."""
        prefix = shared_key(self.app)
        return _state_values(await self._records.under(StateRow, prefix), prefix)

    async def outlive(self, source_thread: str) -> None:
        """Set a session's state again, so that it remains when that session is destroyed.

        Raises `Conflict` after a concurrent write.
        """
        prefix = shared_key(self.app)
        if not await self.thread.exists():
            return
        seen = await self.thread.last_seq()
        rows = await self._records.under(StateRow, prefix)
        its = [(key, row) for key, row in rows if row.source_thread == source_thread]
        if its:
            state = as_json(_state_values(its, prefix))
            await self.thread.dispatch(SharedStateSet(app=self.app, state=state), expected_seq=seen)


def _state_values(rows: Iterable[tuple[str, StateRow]], prefix: str) -> dict[str, object]:
    return {key.removeprefix(prefix): json.loads(row.value) for key, row in rows}


def _events_back(text: str, beside: Sequence[NewEvent]) -> int:
    """How many events before the entry (negative) the text is said; 0: nowhere."""
    places = (n for n, new in enumerate(beside) if text in _event_texts(new.event))
    return next(places, len(beside)) - len(beside)


def _event_texts(event: Event | None) -> list[str]:
    """The texts that an event says: its content, or the parts of it."""
    content = getattr(event, "content", "")
    return [content] if isinstance(content, str) else [part.text for part in content if isinstance(part, TextPart)]


def _put_at_pointer(entry: object, pointer: str, text: str) -> bool:
    """Put a text where a pointer says; whether there is such a place."""
    *way, last = pointer.split("/")
    for step in way:
        if isinstance(entry, list):
            entry = entry[int(step)]
        elif isinstance(entry, dict):
            entry = entry.get(step)
    if not isinstance(entry, dict) or last not in entry:
        return False
    entry[last] = text
    return True


def _text_checksum(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))
