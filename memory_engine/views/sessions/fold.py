"""Sessions by their entries and their state; in the thread of a user or an agent, the state that sessions share."""

from typing import cast

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, Rows, seq_key
from memory_engine.views.sessions.events import SessionBegun, SessionEntryKept, SharedStateSet


class SessionHead(msgspec.Struct, frozen=True, tag="session", gc=False):
    """A session: the seq of its last event, and the time that this says."""

    seq: int
    timestamp: float


class SessionEntryRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="entry", gc=False):
    """An entry: the seq of its event, which follows `messages` events."""

    seq: int
    timestamp: float
    invocation: str = ""
    messages: int = 0


class StateRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="state", gc=False):
    """A value of the state as JSON, and the seq of the event that set it."""

    value: str
    seq: int
    source_thread: str = ""


AnySessionRow = SessionHead | SessionEntryRow | StateRow

_STATE = msgspec.json.Decoder(dict[str, msgspec.Raw])
SESSION = "session"
ENTRY = "entry:"
STATE = "state:"


def entry_key(seq: int) -> str:
    """The key of the row of the entry at a seq."""
    return ENTRY + seq_key(seq)


def shared_key(app: str) -> str:
    """The beginning of the keys of an app's state in the thread of a user or an agent."""
    return f"shared:{len(app)}:{app}:"


class SessionFold:
    """The place of each entry, and the latest value of each key."""

    name = "sessions"
    version = 1
    mode: ProjectionMode = "inline"
    lazy = False
    row = cast("type[AnySessionRow]", AnySessionRow)  # a union, which msgspec takes as well as a class
    events: tuple[type[Event], ...] = (SessionBegun, SessionEntryKept, SharedStateSet, MemoryForget)

    def apply(self, rows: Rows[AnySessionRow], event: RecordedEvent) -> None:
        """Change the rows by one event."""
        match event.event:
            case SessionBegun(timestamp=timestamp, state=state):
                rows.put(SESSION, SessionHead(event.seq, timestamp))
                _set(rows, STATE, state, StateRow("", event.seq))
            case SessionEntryKept() as kept:
                entry = SessionEntryRow(event.seq, kept.timestamp, kept.invocation, kept.messages)
                rows.put(entry_key(event.seq), entry)
                if rows.get(SESSION) is not None:
                    rows.put(SESSION, SessionHead(event.seq, kept.timestamp))
                _set(rows, STATE, kept.state, StateRow("", event.seq))
            case SharedStateSet() as shared:
                _set(rows, shared_key(shared.app), shared.state, StateRow("", event.seq, shared.source_thread))
            case MemoryForget() as forget:
                origins = forget.origins()
                for key, row in list(rows.items()):
                    if not isinstance(row, SessionHead) and row.seq in origins:
                        rows.drop(key)


SESSIONS = SessionFold()


def _set(rows: Rows[AnySessionRow], prefix: str, state: str, row: StateRow) -> None:
    try:
        values = _STATE.decode(state)
    except msgspec.MsgspecError:  # no state that a framework has set: nothing can be read of it
        return
    for key, value in values.items():
        rows.put(prefix + key, msgspec.structs.replace(row, value=bytes(value).decode()))
