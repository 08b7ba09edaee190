"""Session items: added in order, read back unchanged, removed from the end."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from memory_engine.core.events.base import Event
from memory_engine.core.records import NewEvent
from memory_engine.errors import IdempotencyConflict
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.life import forgetting
from memory_engine.runtime.messages import items_as_events
from memory_engine.views.records import Records, json_text
from memory_engine.views.session_items.events import SessionItemAdded, SessionItemRemoved
from memory_engine.views.session_items.fold import SESSION_ITEMS, SessionItemRow

Item = dict[str, object]


class SessionItems:
    """The items of one thread, in the format of OpenAI's Responses."""

    def __init__(self, thread: ThreadHandle) -> None:
        self.thread = thread
        self._records = Records(thread, SESSION_ITEMS)

    async def get(self, limit: int | None = None) -> list[Item]:
        """All items, oldest first, or the latest `limit`. Those of forgotten messages are left out."""
        if limit is not None and limit <= 0:
            return []
        rows = await self._records.between(SessionItemRow, "", None, limit, latest=True)
        return await self._items([row for _, row in rows])

    async def add(self, items: Sequence[Item]) -> None:
        """Add items, all or none, and record each as a message of the thread's.

        What cannot be read as a message (an output without its call) is an item alone, and a warning is logged.
        Raises what `dispatch` raises, and `TypeError` for what is not JSON; then nothing was added.
        """
        texts = list(map(json_text, items))
        recorded = await items_as_events(self.thread, [json.loads(text) if whole else None for text, whole in texts])
        events: list[Event] = []
        for (text, _), said in zip(texts, recorded, strict=True):
            events += [_item_added_event(text, None)] if said is None else [said, _item_added_event(text, said)]
        await self.thread.dispatch_all(events)

    async def pop(self) -> Item | None:
        """Remove the latest item, with its message, and return it; `None` without one.

        Of several callers at once, each gets another item.
        """
        while True:
            rows = await self._records.between(SessionItemRow, "", None, 1, latest=True)
            if not rows:
                return None
            row = rows[0][1]
            items = await self._items([row])
            try:
                await self._remove(row)
            except IdempotencyConflict:  # another caller removed it
                await asyncio.sleep(self.thread.kernel.config.follow_s)  # until another process's removal is seen
                continue
            if items:
                return items[0]

    async def _remove(self, row: SessionItemRow) -> None:
        removed = NewEvent(
            SessionItemRemoved(seq=row.seq, claim=self.thread.kernel.new_id()), f"session_item_removed:{row.seq}"
        )
        if not row.is_recorded:
            await self.thread.dispatch(removed)
            return
        message_ids = await self.thread.kernel.reader.ids_at(self.thread.id, {row.seq - 1})
        forget = await forgetting(self.thread, event_ids=list(message_ids), reason="its item was removed")
        await self.thread.dispatch_all([removed, forget])

    async def _items(self, rows: Sequence[SessionItemRow]) -> list[Item]:
        """The items of rows, but for those whose text was destroyed or redacted."""
        seqs = {row.seq for row in rows} | {row.seq - 1 for row in rows if row.is_recorded}
        events = await self._records.events(seqs)
        found: list[Item] = []
        for row in rows:
            text = _full_item_text(cast("SessionItemAdded", events[row.seq]), events.get(row.seq - 1))
            with suppress(ValueError):
                item = json.loads(text)
                found += [item] if isinstance(item, dict) else []
        return found


def _item_added_event(text: str, said: Event | None) -> SessionItemAdded:
    """The event of an item, without the text that its message holds."""
    if said is None:
        return SessionItemAdded(head=text)
    content = _json_content(said)
    head, found, tail = text.partition(content) if content else (text, "", "")
    return SessionItemAdded(head=head, tail=tail, back=-1, is_cut=bool(found))


def _full_item_text(added: SessionItemAdded, said: object) -> str:
    return added.head + (_json_content(said) if added.is_cut else "") + added.tail


def _json_content(said: object) -> str:
    """The text of a message, in the spelling of JSON; empty for none."""
    content = getattr(said, "content", "")
    return json.dumps(content, ensure_ascii=False)[1:-1] if isinstance(content, str) else ""
