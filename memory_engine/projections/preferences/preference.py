"""A preference as it is stored, and as it holds for a user: stored, of their persona, or the domain's default."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Literal

import msgspec

from memory_engine.clock import to_datetime
from memory_engine.events.preferences import PreferenceOrigin, RuleReference
from memory_engine.projections.preferences.domain import Domain
from memory_engine.projections.preferences.kinds import Kind


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


class Preference(msgspec.Struct, frozen=True, kw_only=True):
    """A preference that holds, and why.

    `origin` says who set it; `"persona"` and `"default"` are of the domain, then `seq` is 0 and
    there is no event. `kind` is the declared kind it was checked against, empty for none.
    `sources` are the ids of events it was drawn from, in whatever thread they are.
    """

    key: str
    value: object
    rule: RuleReference | None = None
    kind: str = ""
    origin: PreferenceOrigin | Literal["persona", "default"] = "explicit"
    reason: str = ""
    seq: int = 0
    event_id: str = ""
    sources: tuple[str, ...] = ()
    causation_id: str = ""
    updated_at: datetime | None = None


class Standing:
    """What holds for a user by a domain: for each key the stored row, else the persona's value, else the default."""

    def __init__(self, domain: Domain, row: Callable[[str], PreferenceRow | None]) -> None:
        self._domain = domain
        self._row = row

    def get(self, key: str) -> Preference | None:
        """The preference under a key."""
        row, kind = self._row(key), self._domain.kind(key)
        if row is not None:
            return of_row(row, kind)
        if key in (values := self.persona_values()):
            return _of_domain(key, values[key], "persona", kind)
        if kind is not None and kind.default is not None:
            return _of_domain(key, kind.default, "default", kind)
        return None

    def persona_values(self) -> dict[str, object]:
        """What the user's persona says."""
        key = self._domain.persona_key
        row, kind = self._row(key), self._domain.kind(key)
        name = row.value if row is not None else kind.default if kind is not None else None
        return dict(self._domain.personas.get(name, {})) if isinstance(name, str) else {}

    def keys(self, stored: Iterable[str]) -> list[str]:
        """The keys that have a value, in order, given those that are stored."""
        defaults = (kind.key for kind in self._domain.kinds if kind.default is not None)
        return sorted({*stored, *self.persona_values(), *defaults})


def of_row(row: PreferenceRow, kind: Kind | None) -> Preference:
    """A stored preference; without a rule of its own it acts by that of its kind."""
    return Preference(
        key=row.key,
        value=row.value,
        rule=row.rule or (kind.rule if kind is not None else None),
        kind=row.kind,
        origin=row.origin,
        reason=row.reason,
        seq=row.seq,
        event_id=row.event_id,
        sources=row.sources,
        causation_id=row.causation_id,
        updated_at=to_datetime(row.updated_at_us),
    )


def _of_domain(key: str, value: object, origin: Literal["persona", "default"], kind: Kind | None) -> Preference:
    rule, name = (kind.rule, kind.key) if kind is not None else (None, "")
    return Preference(key=key, value=value, rule=rule, kind=name, origin=origin)
