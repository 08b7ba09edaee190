"""The fold of preferences: the stored ones, by key."""

import msgspec

from memory_engine.core.clock import to_us
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, Rows
from memory_engine.views.preferences.events import PreferenceOrigin, PreferenceRemoved, PreferenceUpdated, RuleReference


class PreferenceRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stored preference. `seq`, `event_id` and `causation_id` are those of the event that set it."""

    key: str
    value: object = None
    rule: RuleReference | None = None
    kind: str = ""
    origin: PreferenceOrigin = "explicit"
    reason: str = ""
    seq: int = 0
    event_id: str = ""
    sources: tuple[str, ...] = ()
    causation_id: str = ""
    updated_at_us: int = 0


class PreferencesFold:
    """The stored preferences, by key. Onboarding never replaces values that were set otherwise."""

    name = "preferences"
    version = 1
    mode: ProjectionMode = "inline"
    row = PreferenceRow
    events: tuple[type[Event], ...] = (PreferenceUpdated, PreferenceRemoved, MemoryForget)
    lazy = False

    def apply(self, rows: Rows[PreferenceRow], event: RecordedEvent) -> None:
        """Set, remove or forget preferences by one event."""
        match event.event:
            case PreferenceUpdated() as updated:
                current = rows.get(updated.key)
                if updated.origin != "onboarding" or current is None or current.origin == "onboarding":
                    rows.put(updated.key, _preference_row(updated, event))
            case PreferenceRemoved(key=key):
                rows.drop(key)
            case MemoryForget(seqs=seqs) if seqs:
                forgotten = frozenset(seqs)
                for key in [key for key, row in rows.items() if row.seq in forgotten]:
                    rows.drop(key)


PREFERENCES = PreferencesFold()


def _preference_row(updated: PreferenceUpdated, event: RecordedEvent) -> PreferenceRow:
    return PreferenceRow(
        key=updated.key,
        value=updated.value,
        rule=updated.rule,
        kind=updated.kind,
        origin=updated.origin,
        reason=updated.reason,
        seq=event.seq,
        event_id=event.id,
        sources=updated.sources,
        causation_id=event.causation_id,
        updated_at_us=to_us(event.recorded_at),
    )
