"""Preferences of a user: values and rules that change how the agent behaves."""

from typing import Annotated, Literal

import msgspec

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import FieldKind, Id, Name, Role, SourceEventId

PromotedName = Annotated[str, Role(FieldKind.NAME, digest="promoted:")]
"""A preference's key: a given name, or one made from the snippet that was promoted to it."""
PreferenceOrigin = Literal["explicit", "onboarding", "promotion", "agent", "imported"]
"""The origin of a preference: its user (or the application for them), a seed, a promoted snippet, the agent itself, or
a file of another system."""


class RuleReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """A registered rule function by name, with its arguments; it is applied when the situation holds all of `when`."""

    name: Id
    arguments: dict[str, object] = msgspec.field(default_factory=dict)
    when: dict[str, object] = msgspec.field(default_factory=dict)


@event("preference_updated", tracked=True, role="memory", chunks="none")
class PreferenceUpdated(Event):
    """A preference is set. `value` is any JSON value; with a `rule` the preference acts instead of being read."""

    key: PromotedName
    value: object = None
    rule: RuleReference | None = None
    kind: Id = ""
    origin: PreferenceOrigin = "explicit"
    reason: str = ""
    sources: tuple[SourceEventId, ...] = ()


@event("preference_removed", tracked=True, role="memory", chunks="none")
class PreferenceRemoved(Event):
    """A preference goes back to its default."""

    key: Name
    reason: str = ""
