"""The snapshots that a thread keeps, compared with a replay as it passes them."""

from collections.abc import Mapping, Sequence

import msgspec
from attrs import frozen

from memory_engine import snapshots
from memory_engine.persistence import LiveChunk, Store
from memory_engine.projections.base import Projection
from memory_engine.projections.refolding import Refolding
from memory_engine.records import StoredEvent
from memory_engine.replay.checking.differences import fields_differ, limited, places_differ, rows_differ
from memory_engine.snapshots import StateSnapshot
from memory_engine.state import StateDraft

_STATE, _VIEW = "state", "view/"
_STATES = msgspec.msgpack.Decoder(StateSnapshot)
_ROWS = msgspec.msgpack.Decoder(dict[str, bytes])


@frozen
class KeptSnapshots:
    """Snapshots by the seq that they are of, and by what they are of."""

    _by_seq: Mapping[int, Mapping[str, bytes]]

    @classmethod
    async def of(cls, store: Store, thread_id: str, projections: Sequence[Projection[object]] = ()) -> "KeptSnapshots":
        """Those of a thread's own, not of the past that it shares, of its state and of these projections."""
        known = {_STATE, *(f"{_VIEW}{p.name}/{p.version}" for p in projections)}
        by_seq: dict[int, dict[str, bytes]] = {}
        _, rows = await store.rows(snapshots.PROJECTION, snapshots.VERSION, thread_id)
        for key, value in rows.items():
            name, _, seq = key.rpartition(":")
            if name in known and seq.isdecimal():
                by_seq.setdefault(int(seq), {})[name] = value
        return cls(by_seq)

    def differences(self, stored: StoredEvent, draft: StateDraft, refolding: Refolding) -> tuple[str, ...]:
        """How the snapshots after this event differ from what the replay has come to. What no reader uses is let be."""
        lines: list[str] = []
        for name, value in self._by_seq.get(stored.seq, {}).items():
            if name == _STATE:
                lines += _state_differs(value, stored, draft)
            else:
                lines += _rows_differ(name.removeprefix(_VIEW).rpartition("/")[0], value, refolding)
        return limited(lines)


def _state_differs(value: bytes, stored: StoredEvent, draft: StateDraft) -> list[str]:
    try:
        kept = _STATES.decode(value)
    except msgspec.MsgspecError:
        return []
    if kept.hash != stored.hash:
        return []
    made = [LiveChunk(p.chunk.id, p.key, p.container) for p in draft.placed()]
    counted = {"chunks": kept.chunks, "tokens": kept.tokens}
    lines = [*places_differ(kept.live, made)]
    lines += fields_differ("state", counted, {"chunks": draft.tally.chunks, "tokens": draft.tally.tokens})
    return lines


def _rows_differ(view: str, value: bytes, refolding: Refolding) -> list[str]:
    try:
        kept = _ROWS.decode(value)
    except msgspec.MsgspecError:
        return []
    made = refolding.rows[view].encoded()
    return [] if kept == made else [*rows_differ(view, kept, made)]
