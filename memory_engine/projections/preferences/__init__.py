"""Preferences: values and rules of a user, declared by a domain, found by flow, by likeness and by relation."""

from memory_engine.projections.preferences.domain import Domain
from memory_engine.projections.preferences.kinds import Kind
from memory_engine.projections.preferences.rules import Rules

__all__ = ["Domain", "Kind", "Rules"]
