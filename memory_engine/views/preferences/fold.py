"""The fold of preferences: the stored ones, by key."""

from datetime import datetime
from typing import Literal

import msgspec

from memory_engine.core.clock import to_datetime, to_us
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, Rows
from memory_engine.views.preferences.events import PreferenceOrigin, PreferenceRemoved, PreferenceUpdated, RuleReference


class Preference(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A current preference, and where it comes from; a row of the view is a stored one.

    `origin` says who set it; `"persona"` and `"default"` come from the domain, then `seq` is 0 and there is no event.
    `kind` is the declared kind it was checked against, empty for none. `sources` are the ids of events it was drawn
    from, in any thread. `seq`, `event_id` and `causation_id` are those of the event that set it, `updated_at_us` is
    when (microseconds since 1970).
    """

    key: str
    value: object = None
    rule: RuleReference | None = None
    kind: str = ""
    origin: PreferenceOrigin | Literal["persona", "default"] = "explicit"
    reason: str = ""
    seq: int = 0
    event_id: str = ""
    sources: tuple[str, ...] = ()
    causation_id: str = ""
    updated_at_us: int = 0

    @property
    def updated_at(self) -> datetime | None:
        """When it was set; `None` for what the domain says."""
        return to_datetime(self.updated_at_us) if self.seq else None


PreferenceRow = Preference
"""The older name of a row."""


class PreferencesFold:
    """The stored preferences, by key. Onboarding never replaces values that were set otherwise."""

    name = "preferences"
    version = 1
    mode: ProjectionMode = "inline"
    row = Preference
    events: tuple[type[Event], ...] = (PreferenceUpdated, PreferenceRemoved, MemoryForget)
    lazy = False

    def apply(self, rows: Rows[Preference], event: RecordedEvent) -> None:
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


def _preference_row(updated: PreferenceUpdated, event: RecordedEvent) -> Preference:
    return Preference(
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
