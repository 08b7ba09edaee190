"""The acts of the inspector with `--write`: undo a compaction, keep a what-if as a fork.

Each is requested by a POST with the token in a header, which no page of another site can send. The store is opened
for this act only, as a command would open it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from memory_engine.core.json_form import as_data
from memory_engine.inspector.answers import Inspection, WrongQuery, answered_by_work
from memory_engine.inspector.routes_what_if import ChangeSaid, change_of, check_length

BODY_BYTES_MAX = 1024 * 1024
REASON = "undone in the inspector"


class UndoAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Undo a compaction of a thread."""

    thread: str
    compaction: str
    reason: str = REASON


class KeepAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Make a fork of a thread, run again under a change up to a seq."""

    thread: str
    change: ChangeSaid
    upto: int
    max_tokens: int | None = None


async def undo(inspection: Inspection, body: bytes) -> object:
    """Record the event that undoes a compaction; returns its seq."""
    asked = _decoded_body(body, UndoAsked)
    async with inspection.writing() as engine:
        receipt = await engine.thread(asked.thread).compaction.undo(asked.compaction, reason=asked.reason)
    return {"thread": asked.thread, "seq": receipt.seq, "restored": len(receipt.chunks)}


async def keep(inspection: Inspection, body: bytes) -> object:
    """Write a what-if as a fork; returns its id and length."""
    asked = _decoded_body(body, KeepAsked)
    check_length(asked.change, asked.upto)
    async with inspection.writing() as engine:
        change = await change_of(engine, asked.thread, asked.change, asked.upto, asked.max_tokens)
        report = await engine.thread(asked.thread).replay.what_if(change)
    return {"thread": asked.thread, "fork": report.fork_id, "head": report.head, "totals": as_data(report.fork)}


T = TypeVar("T")


def _decoded_body(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WrongQuery("body", "", str(error)) from None


Act = Callable[[Inspection, bytes], Awaitable[object]]
ACTS: Mapping[str, Act] = {"undo": undo, "keep": keep}


async def acted(name: str, inspection: Inspection, body: bytes) -> tuple[int, bytes]:
    """The status and the JSON of an act, or of its error."""
    return await answered_by_work(name, lambda: ACTS[name](inspection, body))
